"""python3 -m utils.verification: five random inputs against model.py; prints "[PASS] verify success" or why not."""

from utils._judge import main

if __name__ == "__main__":
    main("verify")
