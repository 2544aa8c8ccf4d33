"""Training: rejection fine-tuning, critic pretraining and PPO, as processes that a stage supervises.

Light (no torch): episodes, job, rft, checkpoint, launch. Heavy, imported by the training process only: the rest.
"""
