// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (st *serviceState) findUser(name string) (*user, error) {
	u, ok := st.Users[name]
	if !ok {
		return nil, newNotFoundError("The user with name %s cannot be found.", name)
	}

	return u, nil
}

func (u *user) toUser(s *IAM) *iam.User {
	return &iam.User{
		Arn:        new(u.userARN(s)),
		UserId:     new(u.ID),
		UserName:   new(u.Name),
		Path:       new(u.Path),
		CreateDate: new(u.Created),
	}
}

func (s *IAM) createUser(in *iam.CreateUserInput) (*iam.CreateUserOutput, error) {
	u := &user{Keys: map[string]*accessKey{}}
	u.Name = *in.UserName
	u.Created = s.cfg.Now().UTC()
	u.Inline = map[string]string{}
	if err := validateName("userName", u.Name, maxRoleNameLength); err != nil {
		return nil, err
	}

	var err error
	if u.Path, err = resolvePath(in.Path); err != nil {
		return nil, err
	}

	if u.Tags, err = mergeTags(nil, in.Tags); err != nil {
		return nil, err
	}

	for other := range s.st.Users {
		if strings.EqualFold(other, u.Name) {
			return nil, newExistsError("User with name %s already exists.", u.Name)
		}
	}

	if u.ID, err = newUniqueID(s.cfg.Rand, "AIDA", 21); err != nil {
		return nil, err
	}

	if err := s.st.setBoundary(&u.identity, stringValue(in.PermissionsBoundary)); err != nil {
		return nil, err
	}

	s.st.Users[u.Name] = u
	s.stale.track(kindUser, u.Name)
	out := u.toUser(s)
	out.Tags = tagList(u.Tags)
	out.PermissionsBoundary = u.attachedBoundary()

	return &iam.CreateUserOutput{User: out}, nil
}

// getUser returns a user, or the caller if the request has no name.
func (s *IAM) getUser(ctx context.Context, in *iam.GetUserInput) (*iam.GetUserOutput, error) {
	caller := wire.CallerFrom(ctx)
	if in.UserName == nil {
		if caller.Root {
			return &iam.GetUserOutput{
				User: &iam.User{
					Arn:        new(caller.ARN),
					UserId:     new(caller.UserID),
					UserName:   new(""),
					Path:       new("/"),
					CreateDate: new(s.cfg.Now().UTC()),
				},
			}, nil
		}

		if caller.Role != "" {
			return nil, newValidationError("Must specify userName when calling with non-User credentials")
		}

		in = &iam.GetUserInput{UserName: new(caller.ARN[strings.LastIndex(caller.ARN, "/")+1:])}
	}

	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	out := u.toUser(s)
	out.Tags = tagList(u.Tags)
	out.PermissionsBoundary = u.attachedBoundary()

	return &iam.GetUserOutput{User: out}, nil
}

func (s *IAM) listUsers(in *iam.ListUsersInput) (*iam.ListUsersOutput, error) {
	keys := slices.DeleteFunc(sortedKeys(s.st.Users), func(name string) bool {
		return !strings.HasPrefix(s.st.Users[name].Path, stringValue(in.PathPrefix))
	})
	w, err := paginateKeys(s.stale.visible(kindUser, keys), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListUsersOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, name := range w.keys {
		out.Users = append(out.Users, s.st.Users[name].toUser(s))
	}

	return out, nil
}

func (s *IAM) deleteUser(in *iam.DeleteUserInput) (*iam.DeleteUserOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	if len(u.Keys) > 0 {
		return nil, newDeleteConflictError("delete access keys")
	}

	if err := u.checkDeletable(); err != nil {
		return nil, err
	}

	delete(s.st.Users, u.Name)

	return &iam.DeleteUserOutput{}, nil
}

// findUserOrCaller returns the user of that name, or the caller if name is nil.
func (st *serviceState) findUserOrCaller(ctx context.Context, name *string) (*user, error) {
	if name != nil {
		return st.findUser(*name)
	}

	caller := wire.CallerFrom(ctx)
	if caller.Root || caller.Role != "" {
		return nil, newValidationError("Must specify userName when calling with non-User credentials")
	}

	return st.findUser(caller.ARN[strings.LastIndex(caller.ARN, "/")+1:])
}

func (s *IAM) createAccessKey(
	ctx context.Context,
	in *iam.CreateAccessKeyInput,
) (*iam.CreateAccessKeyOutput, error) {
	u, err := s.st.findUserOrCaller(ctx, in.UserName)
	if err != nil {
		return nil, err
	}

	if len(u.Keys) >= maxAccessKeys {
		return nil, newLimitError("Cannot exceed quota for AccessKeysPerUser: %d", maxAccessKeys)
	}

	id, err := newUniqueID(s.cfg.Rand, "AKIA", 20)
	if err != nil {
		return nil, err
	}

	secret, err := newSecret(s.cfg.Rand, 40)
	if err != nil {
		return nil, err
	}

	k := &accessKey{Secret: secret, Active: true, Created: s.cfg.Now().UTC()}
	if u.Keys == nil {
		u.Keys = map[string]*accessKey{}
	}

	u.Keys[id] = k
	s.stale.track(kindAccessKey, id)

	return &iam.CreateAccessKeyOutput{
		AccessKey: &iam.AccessKey{
			AccessKeyId:     new(id),
			SecretAccessKey: new(secret),
			Status:          new(iam.StatusTypeActive),
			UserName:        new(u.Name),
			CreateDate:      new(k.Created),
		},
	}, nil
}

func (s *IAM) deleteAccessKey(
	ctx context.Context,
	in *iam.DeleteAccessKeyInput,
) (*iam.DeleteAccessKeyOutput, error) {
	u, err := s.st.findUserOrCaller(ctx, in.UserName)
	if err != nil {
		return nil, err
	}

	if u.Keys[*in.AccessKeyId] == nil {
		return nil, newNotFoundError("The Access Key with id %s cannot be found.", *in.AccessKeyId)
	}

	delete(u.Keys, *in.AccessKeyId)

	return &iam.DeleteAccessKeyOutput{}, nil
}

func (s *IAM) updateAccessKey(
	ctx context.Context,
	in *iam.UpdateAccessKeyInput,
) (*iam.UpdateAccessKeyOutput, error) {
	u, err := s.st.findUserOrCaller(ctx, in.UserName)
	if err != nil {
		return nil, err
	}

	k := u.Keys[*in.AccessKeyId]
	if k == nil {
		return nil, newNotFoundError("The Access Key with id %s cannot be found.", *in.AccessKeyId)
	}

	k.Active = *in.Status == iam.StatusTypeActive

	return &iam.UpdateAccessKeyOutput{}, nil
}

func (s *IAM) listAccessKeys(
	ctx context.Context,
	in *iam.ListAccessKeysInput,
) (*iam.ListAccessKeysOutput, error) {
	u, err := s.st.findUserOrCaller(ctx, in.UserName)
	if err != nil {
		return nil, err
	}

	page, err := paginateKeys(s.stale.visible(kindAccessKey, sortedKeys(u.Keys)), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListAccessKeysOutput{IsTruncated: page.isTruncated, Marker: page.marker}

	for _, id := range page.keys {
		status := iam.StatusTypeInactive
		if u.Keys[id].Active {
			status = iam.StatusTypeActive
		}

		out.AccessKeyMetadata = append(out.AccessKeyMetadata, &iam.AccessKeyMetadata{
			AccessKeyId: new(id),
			Status:      new(status),
			UserName:    new(u.Name),
			CreateDate:  new(u.Keys[id].Created),
		})
	}

	return out, nil
}
