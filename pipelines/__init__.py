"""Commands: what joins the libraries into jobs."""
