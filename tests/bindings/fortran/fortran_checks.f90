! What the test programs of the Fortran binding share: checks that count, and the end of a program. A program with a failed check
! names the check and ends with an error.
module fortran_checks
  use qccl
  implicit none
  private
  public :: check, check_refused, check_sentence, end_of_checks

  integer :: checks = 0, failures = 0

contains

  subroutine check(is_right, what)
    logical, intent(in) :: is_right
    character(*), intent(in) :: what
    checks = checks + 1
    if (is_right) return
    failures = failures + 1
    print '(2a)', "failed: ", what
  end subroutine

  ! ierror is `expected`, and the sentence says `why`.
  subroutine check_refused(ierror, expected, sentence, why)
    integer, intent(in) :: ierror, expected
    character(*), intent(in) :: sentence, why
    character(40) :: result
    write (result, '(a, i0, a, i0)') ": result ", ierror, " instead of ", expected
    call check(ierror == expected, why // trim(result))
    call check_sentence(sentence, why)
  end subroutine

  subroutine check_sentence(sentence, why)
    character(*), intent(in) :: sentence, why
    call check(index(sentence, why) > 0, "'" // why // "' is not in '" // sentence // "'")
  end subroutine

  subroutine end_of_checks(least)
    integer, intent(in) :: least ! fewer checks were not all
    call check(checks >= least, "the program came to too few checks")
    print '(i0, a, i0, a)', checks, " checks, ", failures, " failed"
    if (failures > 0) error stop
  end subroutine

end module fortran_checks
