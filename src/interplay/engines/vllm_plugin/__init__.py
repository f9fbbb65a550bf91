"""What Interplay adds to a vLLM server. It runs inside vLLM's process, in vLLM's environment, and imports only vLLM and
torch. `engines/vllm_server.py` copies this folder to where the server finds it, as `interplay_vllm`."""
