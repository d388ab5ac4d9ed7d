"""Launch files, read with the code: shell scripts, Slurm batch files, YAML and TOML configurations."""
