# engine/architectures.json as a C++ table: roster_rows.inc in the build folder.
set(roster ${CMAKE_CURRENT_SOURCE_DIR}/engine/architectures.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${roster})
file(READ ${roster} document)
string(JSON roster_pin GET "${document}" pin)
string(JSON roster_stack GET "${document}" stack_digest)
string(JSON count LENGTH "${document}" architectures)
set(rows "")
if(count GREATER 0)
  math(EXPR last "${count} - 1")
  foreach(index RANGE ${last})
    # One row at a time: the whole document is parsed at every look.
    string(JSON row GET "${document}" architectures ${index})
    string(JSON name GET "${row}" name)
    string(JSON status GET "${row}" status)
    string(JSON reason GET "${row}" reason)
    string(APPEND rows "    {R\"dgr(${name})dgr\", R\"dgr(${status})dgr\", R\"dgr(${reason})dgr\"},\n")
  endforeach()
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/roster_rows.inc CONTENT
"constexpr absl::string_view kRosterPin = \"@roster_pin@\";
constexpr absl::string_view kRosterStack = \"@roster_stack@\";
constexpr std::array<Row, @count@> kRows = {{
@rows@}};
" @ONLY)
