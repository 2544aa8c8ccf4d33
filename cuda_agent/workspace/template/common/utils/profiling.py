"""python3 -m utils.profiling: times of eager PyTorch, torch.compile and ModelNew, measured by the judge."""

from utils._judge import main

if __name__ == "__main__":
    main("profile")
