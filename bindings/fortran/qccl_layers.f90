! Codecs of layers. The comments of qccl.h say which procedures block, and which threads may call them. Layers count from 0, as in
! C. ierror: receives the result. Without it an error prints its sentence and stops the program.
module qccl_layers
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_config, only: c_text, ask_text
  use qccl_errors, only: finish
  use qccl_buffers, only: call_arguments, read_messages
  use qccl_c
  implicit none
  private
  public :: qcclLayerCodecsCreate, qcclLayerCodecsNote, qcclLayerCodecsDecide, qcclLayerCodecsGet, qcclLayerCodecsDescribe, &
    qcclLayerCodecsDestroy

contains

  ! counts: the number of values of each layer. uniform, candidates: those of C's NULL if they are left out.
  subroutine qcclLayerCodecsCreate(layers, counts, datatype, uniform, candidates, ierror)
    type(qcclLayerCodecs), intent(out) :: layers
    integer(c_size_t), intent(in), contiguous, target :: counts(:)
    type(qcclDataType), intent(in) :: datatype
    character(*), intent(in), optional :: uniform, candidates
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char), allocatable, target :: budget(:), choices(:)
    type(c_ptr) :: passed_budget, passed_choices
    passed_budget = c_null_ptr
    passed_choices = c_null_ptr
    if (present(uniform)) then
      allocate (budget, source=c_text(uniform))
      passed_budget = c_loc(budget)
    end if
    if (present(candidates)) then
      allocate (choices, source=c_text(candidates))
      passed_choices = c_loc(choices)
    end if
    call finish("qcclLayerCodecsCreate", c_qcclLayerCodecsCreate(layers%handle, c_loc(counts), size(counts, kind=c_size_t), &
      datatype%value, passed_budget, passed_choices), ierror=ierror)
  end subroutine

  ! values: an array of all values of the layer, of the type that the layers have.
  subroutine qcclLayerCodecsNote(layers, layer, values, ierror)
    type(qcclLayerCodecs), intent(in) :: layers
    integer, intent(in) :: layer
    type(*), dimension(..), intent(in), target :: values
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    integer(c_int32_t) :: result
    result = read_messages(a, send=values, datatype=qcclUint8, comm=c_null_ptr)
    if (result /= qcclSuccess) then
      call finish("qcclLayerCodecsNote", result, refused=.true., ierror=ierror)
    else
      result = c_qcclLayerCodecsNote(layers%handle, int(layer, c_size_t), a%send)
      call finish("qcclLayerCodecsNote", result, ierror=ierror)
    end if
  end subroutine

  ! comm: no other rank takes the choice if it is left out.
  subroutine qcclLayerCodecsDecide(layers, comm, ierror)
    type(qcclLayerCodecs), intent(in) :: layers
    type(qcclComm), intent(in), optional :: comm
    integer(c_int), intent(out), optional :: ierror
    type(qcclComm) :: ranks
    if (present(comm)) ranks = comm
    call finish("qcclLayerCodecsDecide", c_qcclLayerCodecsDecide(layers%handle, ranks%handle), ierror=ierror)
  end subroutine

  subroutine qcclLayerCodecsGet(layers, layer, codec, ierror)
    type(qcclLayerCodecs), intent(in) :: layers
    integer, intent(in) :: layer
    type(qcclCodec), intent(out) :: codec
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclLayerCodecsGet", c_qcclLayerCodecsGet(layers%handle, int(layer, c_size_t), codec%handle), ierror=ierror)
  end subroutine

  ! text: the latest choice, a line for each layer and one for all.
  subroutine qcclLayerCodecsDescribe(layers, text, ierror)
    type(qcclLayerCodecs), intent(in) :: layers
    character(:), allocatable, intent(out) :: text
    integer(c_int), intent(out), optional :: ierror
    integer(c_int32_t) :: result
    call ask_text(c_qcclLayerCodecsDescribe, layers%handle, text, result)
    call finish("qcclLayerCodecsDescribe", result, ierror=ierror)
  end subroutine

  subroutine qcclLayerCodecsDestroy(layers, ierror)
    type(qcclLayerCodecs), intent(in) :: layers
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclLayerCodecsDestroy", c_qcclLayerCodecsDestroy(layers%handle), ierror=ierror)
  end subroutine

end module qccl_layers
