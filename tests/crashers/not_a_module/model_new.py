ModelNew = 42
