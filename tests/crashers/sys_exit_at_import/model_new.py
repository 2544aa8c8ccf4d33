import sys

sys.exit("nothing to see here")
