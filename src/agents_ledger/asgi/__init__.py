"""What both HTTP servers, the web one and the MCP one, share."""
