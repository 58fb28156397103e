! A program without ierror: the first error stops it, with its sentence. One rank. The first argument says which error.
program fortran_stop
  use qccl
  implicit none
  type(qcclComm) :: comm
  type(qcclCodec) :: codec
  type(qcclConfig) :: config
  character(10) :: which
  real :: values(5), longer(6)
  call get_command_argument(1, which)
  values = 1
  call qcclCommInitEnv(comm)
  call qcclAllReduce(QCCL_IN_PLACE, values, comm)
  select case (which)
  case ("binding")
    call qcclAllReduce(values, longer, comm)
  case ("library")
    call qcclCodecCreate(codec, "int8:abacus=1")
  case ("creation")
    config%device = "abacus:0"
    call qcclCommInitEnv(comm, config)
  end select
  print '(a)', "the program went on"
end program
