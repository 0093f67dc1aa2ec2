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
		if found, err := s.adopt(ctx, j); err == nil && found {
			_ = s.book.Do(func() error { r.Physical = j.id; return nil }) // it is in memory in any case
		}
	}
	if r.Physical == "" {
		return s.say(st, r, deleted, "")
	}
	if keep {
		return s.say(st, r, "DELETE_SKIPPED", "")
	}
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
	j := s.jobOf(ctx, st, r)
	err = s.erase(ctx, j, snapshotted(r, replaced))
	if ctx.Err() != nil {
		return errStopping
	}
	if err != nil {
		return errors.Join(err, s.say(st, r, "DELETE"+failed, handlerMessage(err, s.uuid())))
	}
	return s.say(st, r, deleted, "")
}

// say gives a resource a status.
func (s *Service) say(st *stack, r *resource, status, why string) error {
	return s.book.Do(func() error {
		s.setResource(st, r, status, why)
		return nil
	})
}

// snapshotted tells whether a resource's policy asks for a snapshot before it goes.
func snapshotted(r *resource, replaced bool) bool { //revive:disable-line:flag-parameter
	if replaced {
		return r.UpdateReplacePolicy == "Snapshot"
	}
	return r.DeletionPolicy == "Snapshot"
}

// erase removes a resource and waits for its end; a snapshot is of a volume. What is in use is tried again for a while, as
// CloudFormation does.
func (s *Service) erase(ctx context.Context, j *job, snapshot bool) error { //revive:disable-line:flag-parameter
	if snapshot {
		if err := j.do("ec2", "CreateSnapshot", tree{"VolumeId": j.id}); err != nil {
			return err
		}
	}
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
		id: r.Physical, attributes: maps.Clone(r.Attributes), tags: st.Tags, oldTags: st.Tags,
	}
}

// adopt finds what an interrupted creation has made.
func (s *Service) adopt(ctx context.Context, j *job) (bool, error) {
	t := types()[j.kind]
	if t.adopt != nil {
		return t.adopt(j)
	}
	if serviceOf(j.kind) != "ec2" {
		return false, nil
	}
	made, err := s.tagged(ctx, "aws:cloudformation:stack-id", j.stack)
	if err != nil {
		return false, err
	}
	named, err := s.tagged(ctx, "aws:cloudformation:logical-id", j.logical)
	for _, id := range made {
		if slices.Contains(named, id) {
			j.id = id
			return true, nil
		}
	}
	return false, err
}

// tagged are the ids of what has a tag, in EC2. Nobody's end may stop the search.
func (s *Service) tagged(ctx context.Context, key, value string) ([]string, error) {
	out, err := s.call(context.WithoutCancel(s.as(ctx, nobody())), "ec2", "DescribeTags", tree{"Filters": []any{
		tree{"Name": "key", "Values": []any{key}}, tree{"Name": "value", "Values": []any{value}},
	}})
	var ids []string
	for _, e := range list0(out, "Tags") {
		ids = append(ids, textOf(e, "ResourceId"))
	}
	return ids, err
}
