# embed.cmake -- the viewer's files as C arrays, so that the library needs none of them at run time.
#
#   cmake -D OUT=FILE.c -D HTML=... -D STYLE=... -D SCRIPT="a.js|b.js" -P embed.cmake
#
# The scripts are joined in the order given.  The SHA-256 of style and script is what the page's content security policy lets run,
# so it is taken of the very bytes that are embedded.
function(embed name files)
  set(hex "")
  string(REPLACE "|" ";" files "${files}")
  foreach(file IN LISTS files)
    file(READ ${file} one HEX)
    string(APPEND hex ${one})
  endforeach()
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," array "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" array "${array}")
  # The sum of what was joined: of the files' bytes in this order, by way of a file.
  set(joined "${OUT}.${name}")
  file(WRITE ${joined} "")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    file(APPEND ${joined} "${text}")
  endforeach()
  file(SHA256 ${joined} sum)
  file(SIZE ${joined} size)
  file(REMOVE ${joined})
  if(NOT size EQUAL bytes)
    message(FATAL_ERROR "${files}: cannot be joined byte for byte (${size} bytes of ${bytes})")
  endif()
  file(APPEND ${OUT} "static const unsigned char ${name}_data[] = {\n${array}\n};\n"
       "const tn__page_file tn__page_${name} = {${name}_data, ${bytes}, \"${sum}\"};\n")
endfunction()

file(WRITE ${OUT} "/* Made by embed.cmake. */\n#include \"report/html.h\"\n")
embed(html "${HTML}")
embed(style "${STYLE}")
embed(script "${SCRIPT}")
