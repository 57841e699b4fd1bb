#!/bin/sh
# Installs a released archive of channeld: see `install.sh --help`.
#
# Every file of the archive is in PREFIX/lib/channeld/VERSION. Other directories contain only links, which all lead through the link
# PREFIX/lib/channeld/current. The replacement of this one link installs a version or replaces another one, so no installation is
# ever incomplete, whenever this script is interrupted. If the script fails, it removes everything that it created.
set -eu

help() {
    cat <<'END'
Installs channeld from a released archive. Needs no root. Writes nothing unless the checksum of the archive is right.

    sh install.sh [--prefix DIRECTORY] [--dry-run] [--checksums FILE|URL | --sha256 HASH] ARCHIVE
    sh install.sh --uninstall [--prefix DIRECTORY] [--dry-run]

ARCHIVE is channeld-VERSION-ARCHITECTURE-linux.tar.gz: a file or an https address.

    --prefix DIRECTORY      where to install (default: ~/.local, or /usr/local for root): the program is PREFIX/bin/channeld
    --dry-run               check the archive and print the changes, but change nothing
    --checksums FILE|URL    the checksums of the release (default: SHA256SUMS beside the archive)
    --sha256 HASH           the checksum of the archive, instead of a file with checksums
    --uninstall             remove the program. Configurations, states and events are kept
    --help                  print this text
END
}

say() { printf '%s\n' "$*"; }

first_line() { printf '%s\n' "$1" | head -n 1; }

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

usage() {
    printf 'install.sh: %s; see --help\n' "$*" >&2
    exit 64
}

# Runs a command that changes something, or only prints it.
change() {
    if [ -n "$dry_run" ]; then say "would run: $*"; else "$@"; fi
}

# Undoes an installation that did not reach its last step.
finish() {
    for folder in "$unpacked" "$work"; do
        if [ -n "$folder" ]; then rm -rf "$folder"; fi
    done
    printf '%s' "$made" | while IFS= read -r path; do
        if [ -L "$path" ]; then rm -f "$path"; else rmdir "$path" 2>/dev/null || true; fi
    done
}

# Copies a local file or downloads it: fetch FROM TO [ADVICE].
fetch() {
    case $1 in
        https://* | http://*)
            if command -v curl >/dev/null; then
                curl --fail --silent --show-error --location --proto-redir =https --output "$2" "$1"
            elif command -v wget >/dev/null; then
                wget --quiet --output-document "$2" "$1"
            else
                fail "a download needs curl or wget; download $1 yourself and name the file"
            fi || fail "$1 could not be downloaded${3:+; $3}"
            ;;
        *) cp "$1" "$2" || fail "$1 could not be read${3:+; $3}" ;;
    esac
}

# Prints the checksum that the archive must have.
expected() {
    if [ -z "$hash" ]; then
        case $archive in
            */*) sums=${checksums:-${archive%/*}/SHA256SUMS} ;;
            *) sums=${checksums:-SHA256SUMS} ;;
        esac
        case $sums in
            http://*) fail "the checksums must not come from an http address: use https, or give --sha256 HASH" ;;
        esac
        fetch "$sums" "$work/checksums" "name the checksums of the release with --checksums"
        hash=$(awk -v name="${archive##*/}" '$2 == name || $2 == "*" name { print $1; exit }' "$work/checksums")
        [ -n "$hash" ] || fail "$sums has no checksum of ${archive##*/}; was the file renamed?"
    fi
    printf '%s' "$hash" | tr 'A-F' 'a-f'
}

# Checks the archive before anything is unpacked, and lists its files.
check() {
    wanted=$(expected)
    fetch "$archive" "$work/archive"
    found=$(sha256sum <"$work/archive" | cut -d' ' -f1)
    [ "$found" = "$wanted" ] ||
        fail "the checksum of $archive is $found instead of $wanted: the file is damaged or was replaced. Download it again"
    tar -tzf "$work/archive" >"$work/list" 2>"$work/error" || fail "$archive is damaged: $(grep -m 1 . "$work/error")"
    folder=$(cut -d/ -f1 "$work/list" | sort -u)
    case $folder in
        channeld-*-linux) ;;
        *) fail "$archive is not an archive of channeld" ;;
    esac
    if ! grep -qx "$folder/channeld" "$work/list" || grep -q '\.\./' "$work/list"; then
        fail "$archive is not an archive of channeld"
    fi
    case $folder in
        *-"$(uname -m)"-linux) ;;
        *) fail "$folder is for another machine: this one needs an archive for $(uname -m)" ;;
    esac
    id=$folder-$(printf '%.12s' "$found")
}

# The links, without the prefix, and the file of the archive to which each leads.
links() {
    sed 's|^[^/]*/||' "$work/list" | sed -n \
        -e 's|^man/\([^/]*\.\([1-9]\)\.gz\)$|share/man/man\2/\1 man/\1|p' \
        -e 's|^completions/channeld\.bash$|share/bash-completion/completions/channeld &|p' \
        -e 's|^completions/_channeld$|share/zsh/site-functions/_channeld &|p' \
        -e 's|^completions/channeld\.fish$|share/fish/vendor_completions.d/channeld.fish &|p' \
        -e 's|^channeld$|bin/channeld &|p'
}

is_ours() {
    case $(readlink "$1" || true) in "$home/current/"*) return 0 ;; esac
    return 1
}

# Prints every link of an installation.
installed_links() {
    for directory in bin share; do
        [ ! -d "$prefix/$directory" ] || find "$prefix/$directory" -type l
    done | while IFS= read -r path; do
        if is_ours "$path"; then say "$path"; fi
    done
}

# Fails if a path belongs to something else, or cannot be written.
check_prefix() {
    links | while read -r link _; do
        if { [ -e "$prefix/$link" ] || [ -L "$prefix/$link" ]; } && ! is_ours "$prefix/$link"; then
            fail "$prefix/$link exists and was not installed by this script: remove it, or choose another --prefix"
        fi
        existing=$(dirname "$prefix/$link")
        while [ ! -e "$existing" ]; do existing=$(dirname "$existing"); done
        [ -d "$existing" ] && [ -w "$existing" ] ||
            fail "$existing cannot be written: choose another --prefix, such as $HOME/.local"
    done
}

# Creates a directory and its parents.
make_directory() {
    [ ! -d "$1" ] || return 0
    make_directory "$(dirname "$1")"
    mkdir "$1"
    made="$1
$made"
}

# Unpacks the archive into a directory on the same file system as its place, and checks that the program runs here.
unpack() {
    tar -xzof "$work/archive" -C "$1" || fail "the archive could not be unpacked"
    version=$("$1/$folder/channeld" --version 2>&1) ||
        fail "the program does not run on this machine; it needs Linux with glibc 2.31 or newer: $version"
    version=$(first_line "$version")
}

install() {
    check
    check_prefix
    if [ -n "$dry_run" ]; then
        unpack "$work"
        say "The archive is valid: $version"
        [ -d "$home/$id" ] || say "would create $home/$id"
        links | while read -r link _; do [ -L "$prefix/$link" ] || say "would link $prefix/$link"; done
        say "would make $prefix/bin/channeld this version. Nothing was changed."
        return
    fi
    make_directory "$home"
    if [ -x "$home/$id/channeld" ]; then
        version=$(first_line "$("$home/$id/channeld" --version)")
    else
        unpacked=$(mktemp -d "$home/.new.XXXXXX")
        unpack "$unpacked"
        rm -rf "${home:?}/$id"
        mv -T "$unpacked/$folder" "$home/$id"
        rmdir "$unpacked"
        unpacked=$home/$id
    fi
    # A loop that reads from a pipe would record nothing in `made`, because it runs in another process.
    links >"$work/links"
    while read -r link file; do
        [ ! -L "$prefix/$link" ] || continue
        make_directory "$(dirname "$prefix/$link")"
        ln -s "$home/current/$file" "$prefix/$link"
        made="$prefix/$link
$made"
    done <"$work/links"
    ln -s "$id" "$home/.current.$$"
    made="$home/.current.$$
$made"
    # The last step: a rename within one file system.
    mv -fT "$home/.current.$$" "$home/current"
    made='' unpacked=''
    for other in "$home"/channeld-*; do
        [ "$other" = "$home/$id" ] || rm -rf "$other"
    done
    installed_links | while IFS= read -r path; do [ -e "$path" ] || rm -f "$path"; done
    say "$version is installed: $prefix/bin/channeld"
    case :$PATH: in
        *:"$prefix/bin":*) ;;
        *) say "Your PATH does not contain this directory. Add it:  export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    say "Try it without an account:  channeld demo --console"
    say "Read your own channels:     channeld init"
    say "Remove it:                  sh '$home/current/install.sh' --uninstall --prefix '$prefix'"
}

uninstall() {
    [ -L "$home/current" ] || fail "$home contains no installation; name its directory with --prefix"
    installed_links >"$work/links"
    while IFS= read -r path; do change rm -f "$path"; done <"$work/links"
    change rm -rf "$home"
    [ -n "$dry_run" ] || say "channeld is removed from $prefix. Configurations, states and events are kept."
}

main() {
    archive='' checksums='' hash='' prefix='' dry_run='' action=install
    work='' unpacked='' made=''
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix | --checksums | --sha256) [ $# -gt 1 ] || usage "$1 needs a value" ;;
        esac
        case $1 in
            --*=*)
                option=$1
                shift
                set -- "${option%%=*}" "${option#*=}" "$@"
                continue
                ;;
            --prefix) prefix=$2 && shift ;;
            --checksums) checksums=$2 && shift ;;
            --sha256) hash=$2 && shift ;;
            --dry-run) dry_run=yes ;;
            --uninstall) action=uninstall ;;
            --help) help && exit ;;
            -*) usage "$1 is not an option" ;;
            *)
                [ -z "$archive" ] || usage "there is more than one archive"
                archive=$1
                ;;
        esac
        shift
    done
    case $action$archive in
        install) usage "name the archive" ;;
        uninstall?*) usage "--uninstall needs no archive" ;;
    esac
    if [ -z "$prefix" ]; then
        if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
    fi
    case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
    home=$prefix/lib/channeld
    umask 022
    trap finish EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    work=$(mktemp -d)
    "$action"
}

# The last line, so that a script that was downloaded only in part does nothing.
main "$@"
