# SPDX-License-Identifier: Apache-2.0
"""Have vLLM look at a model's class, and keep what it saw in its cache.

modelinfo.py FOLDER; VLLM_CACHE_ROOT says where.
"""

import sys

from vllm.engine.arg_utils import EngineArgs

if __name__ == "__main__":
    print(EngineArgs(model=sys.argv[1]).create_model_config().architecture)
