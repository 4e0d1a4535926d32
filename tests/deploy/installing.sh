# What the installers beside it share; they take the parts to install as arguments. Where programs go:
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headlight-deploy
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p "$cache/bin"

wanted() {
  [[ " ${parts[*]} " == *" $1 "* ]]
}

# One program of Debian 13, from the package of its name, unpacked beside the system.
install_of_trixie() {
  local program=$1 folder
  [ ! -x "$cache/bin/$program" ] || return 0
  echo "Fetching $program of Debian 13"
  folder=$(mktemp -d)
  mkdir -p "$folder/lists/partial" "$folder/deb"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$folder/sources"
  local options=(-qq -o "Dir::Etc::sourcelist=$folder/sources" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$folder/lists" -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  apt-get "${options[@]}" update
  (cd "$folder" && apt-get "${options[@]}" download "$program")
  dpkg-deb --extract "$folder/${program}"_*.deb "$folder/deb"
  install "$(find "$folder/deb" -type f -name "$program" -perm -u+x)" "$cache/bin/$program"
  rm -rf "$folder"
}
