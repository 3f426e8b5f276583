# unit_test(NAME sources... LINK libraries...): a GoogleTest program whose cases ctest runs one by one.
# With EVERY_SIMD they run again with the portable and the AVX2 loops (src/machine/search.h).
include(GoogleTest)
find_package(GTest REQUIRED)

function(unit_test name)
  cmake_parse_arguments(arg "EVERY_SIMD" "" "LINK" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest_main tlbscope_flags tlbscope_quick)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60)
  if(arg_EVERY_SIMD)
    foreach(form portable avx2)
      gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_SUFFIX .${form}
                           PROPERTIES ENVIRONMENT TLBSCOPE_SIMD=${form})
    endforeach()
  endif()
endfunction()
