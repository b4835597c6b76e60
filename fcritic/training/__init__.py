"""Training: the loop, what runs on the device, the replay, evaluation, and what is reported."""
