"""Code that Interplay adds to a vLLM server. It runs inside vLLM's process, in vLLM's environment, and imports only
vLLM and torch. `engines/vllm_server.py` copies this folder to a place where the server can import it, under the name
`interplay_vllm`."""
