// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// deleteResources deletes all resources of a stack, in the reverse order of their dependencies. It returns
// the failures by logical ID.
func (s *Service) deleteResources(
	ctx context.Context,
	st *stack,
	op *stackOperation,
	rollback bool,
) map[string]error { //revive:disable-line:flag-parameter
	after := map[string][]string{}
	s.store.View(func() {
		for name, r := range st.Resources {
			if r.Status != statusDeleted && r.Status != "DELETE_SKIPPED" {
				after[name] = r.After
			}
		}
	})

	return dependencyGraph{
		dependencies: reverseEdges(after),
	}.walk(
		ctx,
		func(ctx context.Context, name string) error {
			r := st.Resources[name]
			keep := slices.Contains(op.Retain, name) || r.DeletionPolicy == "Retain" ||
				r.DeletionPolicy == "RetainExceptOnCreate" && !rollback
			return s.deleteResource(ctx, st, r, keep)
		},
	)
}

// deleteResource deletes one resource, or keeps it and records that it was skipped.
func (s *Service) deleteResource(
	ctx context.Context,
	st *stack,
	r *resource,
	keep bool,
) error { //revive:disable-line:flag-parameter
	if r.Physical == "" && r.CreationStarted {
		findCtx, req := s.newRequest(ctx, st, r)
		if found, err := s.findCreatedResource(findCtx, req); err == nil && found {
			s.store.View(func() { r.Physical = req.PhysicalID }) // the deletion below saves it
		}
	}

	if r.Physical == "" {
		return s.saveResourceStatus(st, r, statusDeleted, "")
	}

	if keep {
		return s.saveResourceStatus(st, r, "DELETE_SKIPPED", "")
	}

	replaced := false
	err := s.store.WithLock(func() error {
		replaced = st.Resources[r.Logical] != nil && st.Resources[r.Logical] != r
		if r.Status != "DELETE"+suffixInProgress {
			s.setResourceStatus(st, r, "DELETE"+suffixInProgress, "")
		}

		return nil
	})
	if err != nil {
		return err
	}

	deleteCtx, req := s.newRequest(ctx, st, r)
	err = s.deletePhysical(deleteCtx, req, wantsSnapshot(r, replaced))
	if ctx.Err() != nil {
		return errStopping
	}

	if err != nil {
		return errors.Join(
			err,
			s.saveResourceStatus(st, r, "DELETE"+suffixFailed, handlerMessage(err, sdkshape.RandomUUID(s.cfg.Rand))),
		)
	}

	return s.saveResourceStatus(st, r, statusDeleted, "")
}

// saveResourceStatus sets the status of a resource and saves it.
func (s *Service) saveResourceStatus(st *stack, r *resource, status, why string) error {
	return s.store.WithLock(func() error {
		s.setResourceStatus(st, r, status, why)
		return nil
	})
}

// wantsSnapshot reports whether the policy of a resource requires a snapshot before the deletion.
func wantsSnapshot(r *resource, replaced bool) bool { //revive:disable-line:flag-parameter
	if replaced {
		return r.UpdateReplacePolicy == "Snapshot"
	}

	return r.DeletionPolicy == "Snapshot"
}

// deletePhysical deletes a resource and waits until it is gone. It takes a snapshot of a volume first if
// asked to. A deletion that fails because the resource is in use is retried for a while, as CloudFormation
// does. One whose resource is not found is repeated too: a rollback may come before the service sees a new resource.
func (s *Service) deletePhysical(
	ctx context.Context,
	req *resourcetype.Request,
	snapshot bool,
) error { //revive:disable-line:flag-parameter
	if snapshot {
		if _, err := s.callService(ctx, "ec2", "CreateSnapshot", template.Object{
			"VolumeId": req.PhysicalID,
		}); err != nil {
			return err
		}
	}

	t := req.Type
	end := s.cfg.Now().Add(s.cfg.DeleteRetryTimeout)
	err := s.pollUntil(ctx, s.cfg.StabilizeTimeout, func() (bool, error) {
		err := resourcetype.IgnoreNotFound(t.Delete(expectUnseen(ctx), req))
		if isInUse(err) && s.cfg.Now().Before(end) {
			return false, nil
		}

		return err == nil, err
	})
	if err != nil || t.IsDeleted == nil {
		return err
	}

	return s.pollUntil(ctx, s.cfg.StabilizeTimeout, func() (bool, error) {
		ok, err := t.IsDeleted(ctx, req)
		if resourcetype.IsNotFound(err) {
			return true, nil
		}

		return ok, err
	})
}

// isInUse reports whether a refused deletion can succeed later, because the resource is still in use.
func isInUse(err error) bool {
	return slices.Contains([]string{
		"DependencyViolation", "ResourceInUse", "VolumeInUse", "DeleteConflict", "InvalidIPAddress.InUse", "IncorrectState",
		"ScalingActivityInProgress", "InvalidNetworkInterface.InUse", "AuthFailure", "InvalidAllocationID.InUse", "InvalidState",
		"InvalidStateTransition",
	}, resourcetype.ErrorCode(err))
}

// findCreatedResource looks for the resource that an interrupted creation has created, and sets the physical
// ID of the request.
func (s *Service) findCreatedResource(ctx context.Context, req *resourcetype.Request) (bool, error) {
	t := req.Type
	if t.FindCreated != nil {
		return t.FindCreated(ctx, req)
	}

	if resourcetype.ServiceName(req.TypeName) != "ec2" {
		return false, nil
	}

	ofStack, err := s.findTagged(ctx, "aws:cloudformation:stack-id", req.StackID)
	if err != nil {
		return false, err
	}

	named, err := s.findTagged(ctx, "aws:cloudformation:logical-id", req.LogicalID)

	for _, id := range ofStack {
		if slices.Contains(named, id) {
			req.PhysicalID = id
			return true, nil
		}
	}

	return false, err
}

// findTagged returns the IDs of the EC2 resources that have a tag. It runs with the rights of the region, and
// continues if the operation is cancelled.
func (s *Service) findTagged(ctx context.Context, key, value string) ([]string, error) {
	out, err := s.callService(
		context.WithoutCancel(s.withStackCaller(ctx, wire.SystemCaller())),
		"ec2",
		"DescribeTags",
		template.Object{"Filters": []any{
			template.Object{
				"Name":   "key",
				"Values": []any{key},
			}, template.Object{"Name": "value", "Values": []any{value}},
		}},
	)

	var ids []string
	for _, e := range template.ListAt(out, "Tags") {
		ids = append(ids, template.StringAt(e, "ResourceId"))
	}

	return ids, err
}
