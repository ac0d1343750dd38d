"""Any OpenAI-compatible server: started at a setting and stopped again, or found at an address; asked over HTTP.

Imports nothing of the engine: MindNano's own server is measured as everybody else's is.
"""

from mindnano.bench.servers.client import Answer, Client
from mindnano.bench.servers.facts import Facts
from mindnano.bench.servers.presets import PRESETS
from mindnano.bench.servers.process import Server, open_server
from mindnano.bench.servers.setting import Setting

__all__ = ["PRESETS", "Answer", "Client", "Facts", "Server", "Setting", "open_server"]
