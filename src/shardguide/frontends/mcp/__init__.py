"""The MCP server: Shardguide's workflows as tools for coding agents, over stdio or HTTP on this machine.

Needs the extra ``mcp``; everything that imports the SDK stands in ``server``, which only ``shardguide mcp`` loads.
"""
