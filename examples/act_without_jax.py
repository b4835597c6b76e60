"""Acts with an exported policy, without JAX and without fcritic.

fcritic export runs/pendulum --onnx policy.onnx
python examples/act_without_jax.py policy.onnx
"""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
facts = session.get_modelmeta().custom_metadata_map
for _ in range(3):
    seen = np.zeros(session.get_inputs()[0].shape[1:], np.float32)  # here: read your sensors, in the task's units
    (actions,) = session.run(None, {"observation": seen[None]})  # for one observation at a time
    print(f"{facts['task']}: {actions[0]}, to be held for {facts['action_repeat']} steps")  # here: move your motors
