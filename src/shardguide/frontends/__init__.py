"""The ways in: they call a workflow and render its Guidance. A front end never decides."""
