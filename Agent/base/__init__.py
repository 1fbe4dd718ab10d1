"""What all packages share: texts, checks of arguments, forks, languages, secrets in texts."""
