# Completion of ottla in bash. Written by `make docs` from the parsers; a test compares it.
# To load it: eval "$(ottla completion bash)"

_ottla_row() {
  verbs='' options='' values='' argument=''
  case $1 in
@ROWS@
  esac
}

_ottla() {
  local verbs options values argument place='' want='' word kind index
  local current=${COMP_WORDS[COMP_CWORD]}
  _ottla_row ''
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $want ]]; then
      want=''
    elif [[ $word == -* ]]; then
      [[ " $values " == *" $word="* ]] && want=$word
    elif [[ " $verbs " == *" $word "* ]]; then
      place="${place:+$place }$word"
      [[ $place == 'help '* ]] && place=${place#help }
      _ottla_row "$place"
    fi
  done
  [[ $current == '=' ]] && current=''
  COMPREPLY=()
  if [[ -n $want ]]; then
    kind=" $values "
    kind=${kind#*" $want="}
    kind=${kind%% *}
  elif [[ $current == -* ]]; then
    compopt +o default
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    return
  else
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$current")
    kind=$argument
    [[ -n $verbs && $kind != @file ]] && { compopt +o default; return; }
  fi
  case $kind in
    @file) [[ ${#COMPREPLY[@]} -gt 0 ]] && COMPREPLY+=($(compgen -f -- "$current")) ;;
    @dir)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    @*)
      compopt +o default
      kind=$("${COMP_WORDS[0]}" completion names "${kind#@}" --line "$COMP_LINE" 2>/dev/null)
      mapfile -t COMPREPLY < <(compgen -W "$kind" -- "$current") ;;
    *)
      compopt +o default
      mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$current") ;;
  esac
}

complete -o bashdefault -o default -F _ottla ottla
