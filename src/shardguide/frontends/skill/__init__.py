"""The Agent Skill: a short SKILL.md and reference files that are opened one at a time, all made from the knowledge."""
