"""The workflows of guidance, one package or module each, one shape: gather, advise, check, ask. A workflow never prints."""
