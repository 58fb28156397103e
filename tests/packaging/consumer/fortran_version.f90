! Prints the version of the library that runs.
program fortran_version
  use qccl
  implicit none
  integer :: version
  call qcclGetVersion(version)
  print '(a, i0)', "version ", version
end program
