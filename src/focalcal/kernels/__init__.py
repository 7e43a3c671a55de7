"""The hot loops over scores: each once in a few lines of torch, its definition, and once in C++ (`cpp/`)."""
