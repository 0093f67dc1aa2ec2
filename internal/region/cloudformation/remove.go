// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// removeAll takes away all of a stack's resources, those first that others do not need.
func (s *Service) removeAll(ctx context.Context, st *stack, op *operation, rollback bool) map[string]error { //revive:disable-line:flag-parameter
	after := map[string][]string{}
	_ = s.book.Do(func() error { // it only reads
		for name, r := range st.Resources {
			if r.Status != deleted && r.Status != "DELETE_SKIPPED" {
				after[name] = r.After
			}
		}
		return nil
	})
	return order{after: reversed(after)}.walk(ctx, func(ctx context.Context, name string) error {
		r := st.Resources[name]
		keep := slices.Contains(op.Retain, name) || r.DeletionPolicy == "Retain" || r.DeletionPolicy == "RetainExceptOnCreate" && !rollback
		return s.removeOne(ctx, st, r, keep)
	})
}

// removeOne takes one resource away, or leaves it alone.
func (s *Service) removeOne(ctx context.Context, st *stack, r *resource, keep bool) error { //revive:disable-line:flag-parameter
	if r.Physical == "" && r.Begun {
		j := s.jobOf(ctx, st, r)
		if found, err := s.adopt(j); err == nil && found {
			_ = s.book.Do(func() error { r.Physical = j.id; return nil }) // it is in memory in any case
		}
	}
	if keep || r.Physical == "" {
		return s.book.Do(func() error {
			status := deleted
			if keep && r.Physical != "" {
				status = "DELETE_SKIPPED"
			}
			if r.Physical == "" && r.Status == "" {
				status = deleted
			}
			s.setResource(st, r, status, "")
			return nil
		})
	}
	var j *job
	replaced := false
	err := s.book.Do(func() error {
		replaced = st.Resources[r.Logical] != nil && st.Resources[r.Logical] != r
		if r.Status != "DELETE"+inProgress {
			s.setResource(st, r, "DELETE"+inProgress, "")
		}
		return nil
	})
	if err != nil {
		return err
	}
	j = s.jobOf(ctx, st, r)
	err = s.rescue(j, r, replaced)
	if err == nil {
		err = s.erase(ctx, j)
	}
	if ctx.Err() != nil {
		return errStopping
	}
	return errors.Join(err, s.book.Do(func() error {
		if err != nil {
			s.setResource(st, r, "DELETE"+failed, handlerMessage(err, s.uuid()))
			return nil
		}
		s.setResource(st, r, deleted, "")
		return nil
	}))
}

// rescue takes a snapshot of a volume whose policy asks for one before it goes.
func (s *Service) rescue(j *job, r *resource, replaced bool) error { //revive:disable-line:flag-parameter
	policy := r.DeletionPolicy
	if replaced {
		policy = r.UpdateReplacePolicy
	}
	if policy != "Snapshot" {
		return nil
	}
	return j.do("ec2", "CreateSnapshot", tree{"VolumeId": j.id})
}

// erase removes a resource and waits for its end. What is in use is tried again for a while, as CloudFormation does.
func (s *Service) erase(ctx context.Context, j *job) error {
	t := types()[j.kind]
	end := s.cfg.Now().Add(s.cfg.Patience)
	err := s.poll(ctx, s.cfg.Settle, func() (bool, error) {
		err := unlessAbsent(t.remove(j))
		if inUse(err) && s.cfg.Now().Before(end) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || t.gone == nil {
		return err
	}
	return j.wait(func() (bool, error) {
		ok, err := t.gone(j)
		if absent(err) {
			return true, nil
		}
		return ok, err
	})
}

// inUse tells whether a refusal may end by itself.
func inUse(err error) bool {
	return slices.Contains([]string{
		"DependencyViolation", "ResourceInUse", "VolumeInUse", "DeleteConflict", "InvalidIPAddress.InUse", "IncorrectState",
		"ScalingActivityInProgress", "InvalidNetworkInterface.InUse", "AuthFailure", "InvalidAllocationID.InUse", "InvalidState",
	}, code(err))
}

// jobOf is a job about a resource as it is.
func (s *Service) jobOf(ctx context.Context, st *stack, r *resource) *job {
	return &job{
		ctx: wire.WithSystemTags(ctx, systemTags(st, r)), s: s, stack: st.ID, stackName: st.Name, logical: r.Logical, kind: r.Type, props: r.Properties, old: r.Properties,
		id: r.Physical, attributes: maps.Clone(r.Attributes), tags: st.Tags, oldTags: st.Tags, extra: r.Extra,
	}
}

// adopt finds what an interrupted creation has made.
func (s *Service) adopt(j *job) (bool, error) {
	t := types()[j.kind]
	if t.adopt != nil {
		return t.adopt(j)
	}
	if serviceOf(j.kind) != "ec2" {
		return false, nil
	}
	out, err := s.call(context.WithoutCancel(s.as(j.ctx, nobody())), "ec2", "DescribeTags", tree{"Filters": []any{
		tree{"Name": "tag:aws:cloudformation:stack-id", "Values": []any{j.stack}},
	}})
	if err != nil {
		return false, err
	}
	for _, e := range list0(out, "Tags") {
		id := textOf(e, "ResourceId")
		if textOf(e, "Key") == "aws:cloudformation:stack-id" && s.logicalOf(j, id) == j.logical {
			j.id = id
			return true, nil
		}
	}
	return false, nil
}

func (s *Service) logicalOf(j *job, id string) string {
	out, err := s.call(s.as(j.ctx, nobody()), "ec2", "DescribeTags", tree{"Filters": []any{
		tree{"Name": "resource-id", "Values": []any{id}}, tree{"Name": "key", "Values": []any{"aws:cloudformation:logical-id"}},
	}})
	if err != nil {
		return ""
	}
	return textOf(out, "Tags", 0, "Value")
}
