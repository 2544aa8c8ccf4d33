"""Problems: catalogue, composition, vetting, split and exchange. Importing this package never imports torch."""
