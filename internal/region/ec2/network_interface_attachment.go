// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"log/slog"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// interfaceIDs returns the ids of an instance's network interfaces in the order in which they were attached, the primary one first.
func (st *serviceState) interfaceIDs(instance string) []string {
	x := st.Extra[instance]
	if x == nil || x.Interface == "" {
		return nil
	}

	return append([]string{x.Interface}, x.MoreInterfaces...)
}

// checkSingleInterface refuses a request that names an instance in the place of an interface if it has several.
func checkSingleInterface(st *serviceState, instance string) error {
	if len(st.interfaceIDs(instance)) < 2 {
		return nil
	}

	return newErrorf(
		codeInvalidInstanceID,
		"There are multiple interfaces attached to instance '%s'. Please specify an interface ID for the operation instead.",
		instance,
	)
}

// findAttachment returns the interface with an attachment, or nil.
func (st *serviceState) findAttachment(id string) *sdk.NetworkInterface {
	for _, n := range st.Interfaces {
		if n.Attachment != nil && str(n.Attachment.AttachmentId) == id && id != "" {
			return n
		}
	}

	return nil
}

func attachmentNotFound(id string) error {
	return newErrorf(codeInvalidAttachmentIDNotFound, "The attachment ID '%s' does not exist", id)
}

func (s networkInterfaceHandlers) attachNetworkInterface(
	in *sdk.AttachNetworkInterfaceInput,
) (*sdk.AttachNetworkInterfaceOutput, error) {
	i, err := s.st.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	n, err := s.st.findInterface(in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}

	if in.DeviceIndex == nil {
		return nil, missingParameter("deviceIndex")
	}

	if in.NetworkCardIndex != nil && *in.NetworkCardIndex != 0 {
		return nil, notImplemented("NetworkCardIndex=" + numberText(in.NetworkCardIndex))
	}

	if err := s.checkAttach(i, n, *in.DeviceIndex); err != nil {
		return nil, err
	}

	id := str(i.InstanceId)
	n.Status = new(sdk.NetworkInterfaceStatusInUse)
	n.Attachment = &sdk.NetworkInterfaceAttachment{
		AttachmentId:        new(s.newID("eni-attach")),
		InstanceId:          new(id),
		InstanceOwnerId:     new(s.cfg.Account),
		DeviceIndex:         in.DeviceIndex,
		NetworkCardIndex:    new(int64(0)),
		Status:              new(sdk.AttachmentStatusAttaching),
		AttachTime:          new(s.cfg.Now().UTC()),
		DeleteOnTermination: new(false),
	}
	x := s.st.Extra[id]
	x.MoreInterfaces = append(x.MoreInterfaces, str(n.NetworkInterfaceId))
	s.beginInterfaceTransition(transitionInterfaceAttached, str(n.NetworkInterfaceId))

	return &sdk.AttachNetworkInterfaceOutput{
		AttachmentId:     n.Attachment.AttachmentId,
		NetworkCardIndex: n.Attachment.NetworkCardIndex,
	}, nil
}

// beginInterfaceTransition attaches or detaches an interface. A machine's network has changed before the attachment has.
func (s networkInterfaceHandlers) beginInterfaceTransition(kind, id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(kind, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		for ctx.Err() == nil {
			err := s.ensureNetworkSynced(ctx)
			if err == nil {
				break
			}

			s.cfg.Log.ErrorContext(ctx, "failed to change the interfaces of a machine; retrying", slog.Any("error", err))
			waitForSignal(ctx, nil, endInterval)
		}

		s.completeJob(ctx, kind, id, nil)
	})
}

// resumeInterfaceJob queues the unfinished job of an interface.
func (s networkInterfaceHandlers) resumeInterfaceJob(n *sdk.NetworkInterface) {
	if n.Attachment == nil {
		return
	}

	switch str(n.Attachment.Status) {
	case sdk.AttachmentStatusAttaching:
		s.beginInterfaceTransition(transitionInterfaceAttached, str(n.NetworkInterfaceId))
	case sdk.AttachmentStatusDetaching:
		s.beginInterfaceTransition(transitionInterfaceDetached, str(n.NetworkInterfaceId))
	}
}

// checkAttach refuses to attach an interface as EC2 does.
func (s networkInterfaceHandlers) checkAttach(i *sdk.Instance, n *sdk.NetworkInterface, device int64) error {
	id := str(i.InstanceId)
	state := str(i.State.Name)
	if state != sdk.InstanceStateNameRunning && state != sdk.InstanceStateNameStopped {
		return incorrectState("Instance '%s' is not 'running' or 'stopped'", id)
	}

	if str(n.Status) != sdk.NetworkInterfaceStatusAvailable {
		return newErrorf(
			codeInvalidNetworkInterfaceInUse,
			"Interface: [%s] in use.",
			str(n.NetworkInterfaceId),
		)
	}

	if str(n.AvailabilityZone) != str(i.Placement.AvailabilityZone) {
		return newErrorf(
			codeInvalidParameterCombination,
			"You may not attach a network interface to an instance if they are not in the same availability zone",
		)
	}

	attached := s.st.interfaceIDs(id)
	for _, other := range attached {
		if a := s.st.Interfaces[other].Attachment; a != nil && *a.DeviceIndex == device {
			return newErrorf(
				codeInvalidParameterValue,
				"Instance '%s' already has an interface attached at device index '%d'.",
				id,
				device,
			)
		}
	}

	t := s.instanceTypes[str(i.InstanceType)]
	if count := int64(len(attached)) + 1; count > t.ENIs {
		return newErrorf(
			codeAttachmentLimitExceeded,
			"Interface count %d exceeds the limit for %s",
			count,
			str(i.InstanceType),
		)
	}

	return s.checkAddressLimit(i, usedSlots(n))
}

func (s networkInterfaceHandlers) detachNetworkInterface(
	in *sdk.DetachNetworkInterfaceInput,
) (*sdk.DetachNetworkInterfaceOutput, error) {
	n := s.st.findAttachment(str(in.AttachmentId))
	if n == nil {
		return nil, attachmentNotFound(str(in.AttachmentId))
	}

	if err := checkOwnInterface(n); err != nil {
		return nil, err
	}

	if *n.Attachment.DeviceIndex == 0 {
		return nil, newErrorf(
			codeOperationNotPermitted,
			"The network interface at device index 0 and networkCard index 0 cannot be detached.",
		)
	}

	if str(n.Attachment.Status) != sdk.AttachmentStatusDetaching {
		n.Attachment.Status = new(sdk.AttachmentStatusDetaching)
		s.beginInterfaceTransition(transitionInterfaceDetached, str(n.NetworkInterfaceId))
	}

	return &sdk.DetachNetworkInterfaceOutput{}, nil
}

// changeInterfaceAttachment changes whether an interface is deleted with its instance.
func changeInterfaceAttachment(n *sdk.NetworkInterface, in *sdk.NetworkInterfaceAttachmentChanges) error {
	if n.Attachment == nil || str(in.AttachmentId) != str(n.Attachment.AttachmentId) {
		return attachmentNotFound(str(in.AttachmentId))
	}

	if in.DeleteOnTermination != nil {
		n.Attachment.DeleteOnTermination = in.DeleteOnTermination
	}

	return nil
}

// applyInterfaceTransition ends the attachment or the detachment of an interface.
func (s networkInterfaceHandlers) applyInterfaceTransition(t transition) {
	n := s.st.Interfaces[t.ID]
	if n == nil || n.Attachment == nil {
		return
	}

	status := str(n.Attachment.Status)

	switch {
	case t.Kind == transitionInterfaceAttached && status == sdk.AttachmentStatusAttaching:
		n.Attachment.Status = new(sdk.AttachmentStatusAttached)
	case t.Kind == transitionInterfaceDetached && status == sdk.AttachmentStatusDetaching:
		freeInterface(s.st, n)
	}
}

// freeInterface detaches an interface from its instance at once.
func freeInterface(st *serviceState, n *sdk.NetworkInterface) {
	if x := st.Extra[str(n.Attachment.InstanceId)]; x != nil {
		x.MoreInterfaces = slices.DeleteFunc(
			x.MoreInterfaces,
			func(id string) bool { return id == str(n.NetworkInterfaceId) },
		)
	}

	n.Attachment = nil
	n.Status = new(sdk.NetworkInterfaceStatusAvailable)
}

// releaseInterfaces removes the interfaces of an instance that has ended, and frees those that outlive it.
func (st *serviceState) releaseInterfaces(instance string) {
	for _, id := range st.interfaceIDs(instance) {
		n := st.Interfaces[id]
		if n != nil && !isTrue(n.Attachment.DeleteOnTermination) {
			freeInterface(st, n)
			continue
		}

		st.removeInterface(id)
	}

	st.Extra[instance].Interface = ""
	st.Extra[instance].MoreInterfaces = nil
}
