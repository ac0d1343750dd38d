"""Model files: configuration, safetensors, official checkpoints, the packed file, converting, synthesis.

May import `kernels`, `errors` and `units`; knows nothing of the model's arithmetic.
"""

from mindnano.checkpoint.config import KDAConfig, MLAConfig, ModelConfig, MoEConfig, load_config
from mindnano.checkpoint.conversion import convert
from mindnano.checkpoint.layout import RECIPES
from mindnano.checkpoint.model_files import ModelFiles, open_model
from mindnano.checkpoint.store import ExpertMatrices, WeightStore
from mindnano.checkpoint.summary import ModelSummary, summarize, weight_bytes
from mindnano.checkpoint.synthetic import synth

__all__ = [
    "RECIPES",
    "ExpertMatrices",
    "KDAConfig",
    "MLAConfig",
    "MoEConfig",
    "ModelConfig",
    "ModelFiles",
    "ModelSummary",
    "WeightStore",
    "convert",
    "load_config",
    "open_model",
    "summarize",
    "synth",
    "weight_bytes",
]
