# fish completion for threadfs: asks the program itself. See fs/complete.c.

function __threadfs_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l token (commandline --current-token --cut-at-cursor)
    for line in (threadfs help --complete -- $words[2..-1] "$token" 2>/dev/null)
        switch $line
            case :files
                set -l before (string replace --regex '[^=]*$' '' -- $token)
                for path in (__fish_complete_path (string replace --regex '.*=' '' -- $token))
                    printf '%s%s\n' $before $path
                end
            case :dirs
                __fish_complete_directories $token
            case '*'
                printf '%s\n' $line
        end
    end
end

complete --command threadfs --no-files --arguments '(__threadfs_complete)'
