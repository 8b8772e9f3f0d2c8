# Completion of ottla in fish. Written by `make docs` from the parsers; a test compares it.
# To load it: ottla completion fish | source

function __ottla_row
    set -g __ottla_verbs
    set -g __ottla_summaries
    set -g __ottla_options
    set -g __ottla_values
    set -g __ottla_argument ''
    switch "$argv"
@ROWS@
    end
end

function __ottla_names
    set -l program (commandline -opc)[1]
    $program completion names $argv --line (commandline -p | string collect) 2>/dev/null
end

function __ottla_complete
    set -l current (commandline -ct)
    set -l place ''
    set -l want ''
    set -l before ''
    __ottla_row ''
    for word in (commandline -opc)[2..]
        if test -n "$want"
            set want ''
        else if string match -q -- '-*' $word
            string match -q -- "$word=*" $__ottla_values; and set want $word
        else if contains -- $word $__ottla_verbs
            set place (string trim -- "$place $word")
            set place (string replace -r '^help ' '' -- $place)
            __ottla_row $place
        end
    end
    if test -z "$want"; and string match -q -- '--*=*' $current
        set want (string split -m 1 = -- $current)[1]
        set before "$want="
    end
    set -l kind $__ottla_argument
    if test -n "$want"
        set kind (string match -- "$want=*" $__ottla_values)
        test -n "$kind[1]"; and set kind (string split -m 1 = -- $kind[1])[2]
    else if string match -q -- '-*' $current
        printf '%s\n' $__ottla_options
        return
    else
        for index in (seq (count $__ottla_verbs))
            printf '%s\t%s\n' $__ottla_verbs[$index] $__ottla_summaries[$index]
        end
    end
    switch "$kind"
        case ''
        case @file
            __fish_complete_path (string replace -- "$before" '' $current)
        case @dir
            __fish_complete_directories (string replace -- "$before" '' $current) ''
        case '@*'
            printf "$before%s\n" (__ottla_names (string sub -s 2 -- $kind))
        case '*'
            printf "$before%s\n" (string split '|' -- $kind)
    end
end

complete -c ottla -f -a '(__ottla_complete)'
