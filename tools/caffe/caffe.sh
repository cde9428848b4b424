#!/bin/sh
# A program of Caffe's as Debian built it, whose name this has, with the libraries of its own release.
# Caffe itself has the plugin that TL_CAFFE_PLUGIN names, if it does: LD_PRELOAD would be this shell's.
name=$(basename "$0")
here=$(dirname "$(dirname "$(readlink -f "$0")")")
libraries=$here/usr/lib/x86_64-linux-gnu
[ "$name" = caffe ] || TL_CAFFE_PLUGIN=
case "$TL_CAFFE_PLUGIN" in
*[:\ ]*) echo "caffe: TL_CAFFE_PLUGIN=$TL_CAFFE_PLUGIN: a path with a blank or colon can't be preloaded" >&2 && exit 1 ;;
esac
exec env LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  ${TL_CAFFE_PLUGIN:+LD_PRELOAD="$TL_CAFFE_PLUGIN${LD_PRELOAD:+:$LD_PRELOAD}"} \
  "$here/usr/bin/$name" "$@"
