"""Where metrics go: JSON lines, TensorBoard, trackers."""
