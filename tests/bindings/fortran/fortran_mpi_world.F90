! Communicators of MPI's: of the world, of its halves, by a handle of mpi_f08 and by an integer, and misuse. Started by mpirun.
! OLDER_MPI: the program uses the module mpi, and qccl_mpi is compiled without mpi_f08.
program fortran_mpi_world
#ifdef OLDER_MPI
  use mpi
#else
  use mpi_f08
#endif
  use qccl
  use qccl_mpi
  use fortran_checks
  implicit none
  type(qcclComm) :: comm
  type(qcclConfig) :: config
  character(:), allocatable :: text
  integer :: rank, ranks, ierror, place, count
  real(8) :: total
#ifdef OLDER_MPI
  integer :: half
#else
  type(MPI_Comm) :: half
#endif
  call qcclCommInitMpi(comm, MPI_COMM_WORLD, ierror=ierror)
  call check(ierror == qcclInvalidArgument .and. comm == qcclComm(), "before MPI runs")
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)

  call qcclCommInitMpi(comm, MPI_COMM_WORLD)
  call qcclCommUserRank(comm, place)
  call check(place == rank, "ranks have MPI's numbers")
  total = rank
  call qcclAllReduce(QCCL_IN_PLACE, total, comm)
  call check(nint(total) == ranks * (ranks - 1) / 2, "a sum over the world")
  call qcclCommDestroy(comm)

  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half, ierror)
  config%codec = "bf16"
#ifdef OLDER_MPI
  call qcclCommInitMpi(comm, half, config)
#else
  call qcclCommInitMpi(comm, half%mpi_val, config)
#endif
  call qcclCommCount(comm, count)
  call check(count == (ranks + 1 - mod(rank, 2)) / 2, "half of the ranks")
  call qcclExplain(comm, "all_reduce bytes=1M type=float", text)
  call check_sentence(text, "codec bf16 by the communicator's config")
  call qcclCommDestroy(comm)
  config%device = "abacus:0"
  call qcclCommInitMpi(comm, half, config, ierror)
  call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "abacus:0")
  call MPI_Comm_free(half, ierror)
  call qcclCommInitMpi(comm, MPI_COMM_NULL, ierror=ierror)
  call check(ierror == qcclInvalidArgument, "MPI_COMM_NULL")
  call MPI_Finalize(ierror)
  call qcclCommInitMpi(comm, MPI_COMM_WORLD, ierror=ierror)
  call check(ierror == qcclInvalidArgument, "after MPI's end")
  call end_of_checks(8)
end program
