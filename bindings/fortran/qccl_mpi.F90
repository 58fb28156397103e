! Makes communicators of MPI's, for Fortran programs that use MPI. QCCL installs this file as source, because it is compiled
! with the program's own MPI, together with fortran_mpi.c beside it:
!
!     sources=$(pkg-config --variable=sourcedir qccl-fortran)
!     mpicc -c $sources/fortran_mpi.c $(pkg-config --cflags qccl)
!     mpifort $sources/qccl_mpi.F90 program.f90 fortran_mpi.o $(pkg-config --cflags --libs qccl-fortran)
!
! -DQCCL_NO_MPI_F08 leaves out what needs the module mpi_f08. The module's procedures are called by a thread that may call MPI,
! and block until all ranks have joined.
module qccl_mpi
  use, intrinsic :: iso_c_binding
#ifndef QCCL_NO_MPI_F08
  use mpi_f08, only: MPI_Comm
#endif
  use qccl_comms, only: qcclCommInitFromMpi
  use qccl_config, only: qcclConfig
  use qccl_handles, only: qcclComm
  implicit none
  private
  public :: qcclCommInitMpi

  ! Makes a communicator of the ranks of `mpi`, with the same numbers: <qccl/mpi.h> describes it. mpi is a type(MPI_Comm) of
  ! mpi_f08, or an integer of the older modules.
  interface qcclCommInitMpi
    procedure init_integer
#ifndef QCCL_NO_MPI_F08
    procedure init_f08
#endif
  end interface

  interface
    function c_init(comm, mpi, config) result(code) bind(c, name="qccl_fortran_init_mpi")
      import
      type(c_ptr), intent(inout) :: comm
      integer(c_int), value :: mpi
      type(c_ptr), value :: config
      integer(c_int32_t) :: code
    end function
  end interface

contains

  subroutine init_integer(comm, mpi, config, ierror)
    type(qcclComm), intent(out) :: comm
    integer, intent(in) :: mpi
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    call qcclCommInitFromMpi(comm, mpi, c_init, config, ierror)
  end subroutine

#ifndef QCCL_NO_MPI_F08
  subroutine init_f08(comm, mpi, config, ierror)
    type(qcclComm), intent(out) :: comm
    type(MPI_Comm), intent(in) :: mpi
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    call qcclCommInitFromMpi(comm, mpi%mpi_val, c_init, config, ierror)
  end subroutine
#endif

end module qccl_mpi
