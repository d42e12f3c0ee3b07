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
comppostfuncs=(all_told)
all_told() { print '<end>' }
print ready"
zpty -r -m shell told '*ready*'
zpty -n -w shell "$2"$'\t'
zpty -r -m shell told '*<end>*'
print -r -- "$told" | grep -o '<offer>[^<]*</offer>' | sed 's/<[^>]*>//g'
zpty -d shell
