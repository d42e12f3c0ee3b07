import type { Command } from 'commander';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

interface Word {
  name: string;
  text: string;
}
interface Known extends Word {
  options: (Word & { takesValue: boolean; choices: string[] })[];
  choices: string[];
  verbs: Known[];
}

/** A completion script, generated from the program. The script never runs asset-mirror. */
export function completionScript(app: Command, shell: Shell): string {
  const known = knownOf(app);
  return { bash, zsh, fish }[shell](known.name, known.verbs);
}

function knownOf(command: Command): Known {
  const help = command.createHelp();
  return {
    name: command.name(),
    text: (command.summary() || command.description()).split(/[;:(]/)[0]!.trim(),
    options: help.visibleOptions(command).map((option) => ({
      name: option.long ?? option.short!,
      text: option.description,
      takesValue: option.required || option.optional,
      choices: option.argChoices ?? [],
    })),
    choices: command.registeredArguments.flatMap((argument) => argument.argChoices ?? []),
    verbs: help.visibleCommands(command).map(knownOf),
  };
}

const words = (list: { name: string }[]) => list.map(({ name }) => name).join(' ');
const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function bash(name: string, verbs: Known[]): string {
  const choices = verbs.flatMap((verb) =>
    verb.options
      .filter((option) => option.choices.length > 0)
      .map(
        (option) =>
          `    '${verb.name} ${option.name}') COMPREPLY=($(compgen -W "${option.choices.join(' ')}" -- "$word")); return ;;`,
      ),
  );
  const taking = verbs.flatMap((verb) =>
    verb.options.filter((option) => option.takesValue).map((option) => `'${verb.name} ${option.name}'`),
  );
  return `# ${name}: source <(${name} completion bash)
_${name.replaceAll('-', '_')}() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" verb="\${COMP_WORDS[1]}"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "${words(verbs)} --help --version" -- "$word"))
    return
  fi
  case "$verb $before" in
${choices.join('\n')}
    ${taking.join(' | ')}) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case "$verb" in
${verbs
  .map(
    (verb) =>
      `    ${verb.name}) COMPREPLY=($(compgen -W "${[words(verb.verbs), verb.choices.join(' '), words(verb.options)].filter(Boolean).join(' ')}" -- "$word")) ;;`,
  )
  .join('\n')}
  esac
}
complete -F _${name.replaceAll('-', '_')} ${name}
`;
}

function zsh(name: string, verbs: Known[]): string {
  const described = ({ name: word, text }: Word) => quoted(`${word.replaceAll(':', '\\:')}:${text}`);
  const spec = ({ name: word, text, takesValue, choices }: Known['options'][number]) => {
    const value = takesValue ? `:value:${choices.length > 0 ? `(${choices.join(' ')})` : '_files'}` : '';
    return quoted(`*${word}${takesValue ? '=' : ''}[${text.replace(/[[\]]/g, '')}]${value}`);
  };
  const last = (verb: Known) => {
    const possible = [...verb.choices, ...verb.verbs.map((it) => it.name)];
    // Options may also follow an argument that is unknown here, such as an id.
    return possible.length > 0 ? ` ${quoted(`1:what:(${possible.join(' ')})`)}` : " '*: :'";
  };
  return `#compdef ${name}
# ${name}: source <(${name} completion zsh)
_${name}() {
  local -a verbs=(
${verbs.map((verb) => `    ${described(verb)}`).join('\n')}
  )
  if ((CURRENT == 2)); then
    if [[ "$PREFIX" == -* ]]; then compadd -- --help --version; else _describe verb verbs; fi
    return
  fi
  local verb="\${words[2]}"
  shift words
  ((CURRENT--))
  case "$verb" in
${verbs.map((verb) => `    ${verb.name}) _arguments ${verb.options.map(spec).join(' ')}${last(verb)} ;;`).join('\n')}
  esac
}
compdef _${name} ${name}
`;
}

function fish(name: string, verbs: Known[]): string {
  const lines = [
    `# ${name}: ${name} completion fish | source`,
    `complete -c ${name} -f`,
    `complete -c ${name} -n __fish_use_subcommand -l help -d ${quoted('display help for command')}`,
    `complete -c ${name} -n __fish_use_subcommand -l version -d ${quoted('output the version number')}`,
  ];
  for (const verb of verbs) {
    lines.push(`complete -c ${name} -n __fish_use_subcommand -a ${verb.name} -d ${quoted(verb.text)}`);
    const within = `complete -c ${name} -n ${quoted(`__fish_seen_subcommand_from ${verb.name}`)}`;
    for (const word of [...verb.choices, ...verb.verbs.map((it) => it.name)]) lines.push(`${within} -a ${word}`);
    for (const option of verb.options) {
      const value =
        option.choices.length > 0 ? ` -x -a ${quoted(option.choices.join(' '))}` : option.takesValue ? ' -r' : '';
      const flag = option.name.startsWith('--') ? `-l ${option.name.slice(2)}` : `-s ${option.name.slice(1)}`;
      lines.push(`${within} ${flag}${value} -d ${quoted(option.text)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
