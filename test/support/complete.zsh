# What zsh offers behind a line, one a line: zsh -f complete.zsh SCRIPT LINE
# A shell in a terminal of its own, in which what is handed to the user is printed instead.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; autoload -Uz compinit; compinit -D -u; source ${(q)1}
compadd() {
  if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd \"\$@\"; return \$?; fi
  local -a offered
  builtin compadd -A offered \"\$@\"
  [[ -n \$offered ]] && print -rl -- '<offer>'\$^offered'</offer>'
}
comppostfuncs=(all_offered)
all_offered() { print '<end>' }
print ready"
zpty -r -m shell output '*ready*'
zpty -n -w shell "$2"$'\t'
zpty -r -m shell output '*<end>*'
print -r -- "$output" | grep -o '<offer>[^<]*</offer>' | sed 's/<[^>]*>//g'
zpty -d shell
