"""The judge: builds, compares, times and rewards submissions; it never imports a problem or a submission itself."""
