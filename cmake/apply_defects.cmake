# cmake -DPATCH_PROGRAM=.. -DSOURCE=.. -DPATCH=.. -DTO=.. -P apply_defects.cmake: the source with the patch's defects.
# Nothing is applied that fits only nearly.
execute_process(COMMAND ${PATCH_PROGRAM} --fuzz=0 --no-backup-if-mismatch --reject-file=- --output=${TO} ${SOURCE} ${PATCH}
                RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT status EQUAL 0)
  file(REMOVE ${TO})
  message(FATAL_ERROR "${PATCH} does not apply to ${SOURCE} any more:\n${said}\n"
    "Lines that it changes, or those beside them, have changed. Run tools/refresh_defects: it moves the patch to where they are "
    "now, or says which defects must be put in by hand (tests/defects/README.md).")
endif()
