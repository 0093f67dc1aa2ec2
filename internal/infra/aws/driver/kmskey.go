// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type keyAPI interface {
	keyReadAPI
	keyChangeAPI
	keyPolicyAPI
	aliasAPI
}

type keyReadAPI interface {
	kms.ListKeysAPIClient
	kms.ListGrantsAPIClient
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
	kms.ListResourceTagsAPIClient
	GetKeyRotationStatus(
		context.Context,
		*kms.GetKeyRotationStatusInput,
		...func(*kms.Options),
	) (*kms.GetKeyRotationStatusOutput, error)
}

type keyChangeAPI interface {
	keyStateAPI
	CreateKey(context.Context, *kms.CreateKeyInput, ...func(*kms.Options)) (*kms.CreateKeyOutput, error)
	UpdateKeyDescription(
		context.Context,
		*kms.UpdateKeyDescriptionInput,
		...func(*kms.Options),
	) (*kms.UpdateKeyDescriptionOutput, error)
	ScheduleKeyDeletion(
		context.Context,
		*kms.ScheduleKeyDeletionInput,
		...func(*kms.Options),
	) (*kms.ScheduleKeyDeletionOutput, error)
	TagResource(context.Context, *kms.TagResourceInput, ...func(*kms.Options)) (*kms.TagResourceOutput, error)
	UntagResource(
		context.Context,
		*kms.UntagResourceInput,
		...func(*kms.Options),
	) (*kms.UntagResourceOutput, error)
}

type keyStateAPI interface {
	EnableKey(context.Context, *kms.EnableKeyInput, ...func(*kms.Options)) (*kms.EnableKeyOutput, error)
	DisableKey(context.Context, *kms.DisableKeyInput, ...func(*kms.Options)) (*kms.DisableKeyOutput, error)
	EnableKeyRotation(
		context.Context,
		*kms.EnableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.EnableKeyRotationOutput, error)
	DisableKeyRotation(
		context.Context,
		*kms.DisableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.DisableKeyRotationOutput, error)
}

type keyPolicyAPI interface {
	GetKeyPolicy(
		context.Context,
		*kms.GetKeyPolicyInput,
		...func(*kms.Options),
	) (*kms.GetKeyPolicyOutput, error)
	PutKeyPolicy(
		context.Context,
		*kms.PutKeyPolicyInput,
		...func(*kms.Options),
	) (*kms.PutKeyPolicyOutput, error)
}

const (
	// keyPolicyName is the only name that KMS accepts for the policy of a key.
	keyPolicyName = "default"
	// defaultPendingDays is the waiting period before a key is deleted, in days, if its resource
	// does not set it. It is the shortest that KMS accepts.
	defaultPendingDays = 7
	// formerClusterTag marks a key whose cluster is being deleted. KMS refuses to change the tags
	// of a key that is pending deletion, so the cluster's tags are emptied before. If the program is
	// killed in between, the key is found by this tag.
	formerClusterTag = "slipway.dev/former-cluster"
)

// registerKeys registers the drivers of KMS keys and of their aliases.
func registerKeys(c *Cloud, api keyAPI, scope Scope) {
	var untagged untaggedKeys
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readKeys(ctx, api, scope, &untagged) },
		awskind.KMSKey{},
		awskind.KMSAlias{},
	)

	registerDriver(c, driver[awskind.KMSKey]{
		create: func(ctx context.Context, t task[awskind.KMSKey]) (plan.StepResult, error) {
			return createKey(ctx, api, t, &untagged)
		},
		update: func(ctx context.Context, t task[awskind.KMSKey]) (plan.StepResult, error) {
			return updateKey(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.KMSKey]) error {
			return scheduleKeyDeletion(ctx, api, t, scope)
		},
	})

	registerAliases(c, api)
}

// createKey creates a key and then tags it; see [newKeySid].
func createKey(
	ctx context.Context,
	api keyAPI,
	t task[awskind.KMSKey],
	untagged *untaggedKeys,
) (plan.StepResult, error) {
	meta, err := createUntaggedKey(ctx, api, t.want, untagged)
	if err != nil {
		return plan.StepResult{}, err
	}

	t.id = aws.ToString(meta.KeyId)
	if err := retagKey(ctx, api, t.id, t.want.Tags, nil); err != nil {
		return plan.StepResult{}, transport.MarkNotRetryable(err, t.id)
	}

	t.have = awskind.KMSKey{
		Description: t.want.Description,
		Policy:      t.want.Policy,
		Tags:        t.want.Tags,
		Enabled:     true,
	}

	result, err := updateKey(ctx, api, t)
	result.Attributes = map[string]string{"Arn": aws.ToString(meta.Arn)}

	return result, transport.MarkNotRetryable(err, t.id)
}

// updateKey changes the parts of a key that differ.
func updateKey(ctx context.Context, api keyAPI, t task[awskind.KMSKey]) (plan.StepResult, error) {
	if t.want.Enabled && !t.have.Enabled { // first: KMS refuses most changes of a disabled key
		if _, err := api.EnableKey(ctx, &kms.EnableKeyInput{KeyId: &t.id}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "enable")
		}
	}

	if t.want.Description != t.have.Description {
		in := &kms.UpdateKeyDescriptionInput{KeyId: &t.id, Description: &t.want.Description}
		if _, err := api.UpdateKeyDescription(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set description")
		}
	}

	if t.want.Policy != t.have.Policy {
		policy, _ := addNewKeyStatement(t.want.Policy) // as it was created
		in := &kms.PutKeyPolicyInput{KeyId: &t.id, Policy: &policy, PolicyName: aws.String(keyPolicyName)}
		if _, err := api.PutKeyPolicy(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set policy")
		}
	}

	if err := setKeyState(ctx, api, t); err != nil {
		return plan.StepResult{}, err
	}

	return keepIdentity(t), retagKey(ctx, api, t.id, t.want.Tags, t.have.Tags)
}

// setKeyState turns rotation on or off, and disables a key that is not to be enabled.
func setKeyState(ctx context.Context, api keyStateAPI, t task[awskind.KMSKey]) error {
	var err error
	switch {
	case t.want.Rotation && !t.have.Rotation:
		_, err = api.EnableKeyRotation(ctx, &kms.EnableKeyRotationInput{KeyId: &t.id})
	case !t.want.Rotation && t.have.Rotation:
		_, err = api.DisableKeyRotation(ctx, &kms.DisableKeyRotationInput{KeyId: &t.id})
	}

	if err == nil && !t.want.Enabled && t.have.Enabled {
		_, err = api.DisableKey(ctx, &kms.DisableKeyInput{KeyId: &t.id})
	}

	return transport.Wrap(err, "set the rotation or the state of the key")
}

func retagKey(ctx context.Context, api keyChangeAPI, id string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		if _, err := api.TagResource(ctx, &kms.TagResourceInput{KeyId: &id, Tags: toKMSTags(set)}); err != nil {
			return transport.Wrap(err, "tag")
		}
	}

	if len(remove) > 0 {
		if _, err := api.UntagResource(ctx, &kms.UntagResourceInput{KeyId: &id, TagKeys: remove}); err != nil {
			return transport.Wrap(err, "untag")
		}
	}

	return nil
}

// scheduleKeyDeletion empties the cluster's tags, then schedules the deletion.
func scheduleKeyDeletion(ctx context.Context, api keyChangeAPI, t task[awskind.KMSKey], scope Scope) error {
	mark := toKMSTags(awskind.Tags{
		formerClusterTag:                        scope.Cluster,
		awskind.TagCluster:                      "",
		awskind.TagClusterOwned + scope.Cluster: "",
	})
	if _, err := api.TagResource(ctx, &kms.TagResourceInput{KeyId: &t.id, Tags: mark}); err != nil {
		return transport.Wrap(err, "tag")
	}

	days := defaultPendingDays
	if t.have.PendingWindow != 0 {
		days = t.have.PendingWindow
	}

	_, err := api.ScheduleKeyDeletion(
		ctx,
		&kms.ScheduleKeyDeletionInput{KeyId: &t.id, PendingWindowInDays: int32OrNil(days)},
	)
	if err = transport.Wrap(err, "schedule deletion"); plan.ErrorClassOf(err) == plan.AccessDenied {
		return fmt.Errorf(
			"%w; an administrator has a policy for it: slipway iam operator-policy %s --deletion",
			err,
			scope.Cluster,
		)
	}

	return err
}

// readKeys finds the key by its alias, because KMS cannot list keys by tag. Only if the alias is
// missing are the tags of all keys without an alias read: a run that was killed before it created
// the alias leaves such a key.
func readKeys(
	ctx context.Context,
	api keyAPI,
	scope Scope,
	untagged *untaggedKeys,
) ([]plan.ActualResource, error) {
	meta, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &scope.KeyAlias})
	switch class := plan.ErrorClassOf(transport.Wrap(err, "read key %s", scope.KeyAlias)); {
	case class == plan.NotFound, class == plan.AccessDenied:
		return findUnaliasedKeys(ctx, api, scope, untagged)
	case err != nil:
		return nil, transport.Wrap(err, "read key %s", scope.KeyAlias)
	}

	id := aws.ToString(meta.KeyMetadata.KeyId)
	found := []plan.ActualResource{{
		ID:       scope.KeyAlias,
		Resource: awskind.KMSAlias{Name: scope.KeyAlias, Target: graph.UnmanagedRef[awskind.KMSKey](id)},
	}}

	key, own, err := readKey(ctx, api, meta.KeyMetadata, scope)
	if err != nil {
		return nil, err
	}

	if own {
		return append(found, key), nil
	}

	// The alias was given to another key. The cluster's key may still exist.
	return findUnaliasedKeys(ctx, api, scope, untagged)
}

// findUnaliasedKeys returns the alias, if it exists, and the cluster's keys among those without an
// alias. It records those without tags.
func findUnaliasedKeys(
	ctx context.Context,
	api keyAPI,
	scope Scope,
	untagged *untaggedKeys,
) ([]plan.ActualResource, error) {
	found, ids, err := listUnaliasedKeyIDs(ctx, api, scope.KeyAlias)
	if err != nil {
		return nil, err
	}

	var withoutTags []string
	for _, id := range ids {
		tags, err := readKeyTags(ctx, api, id)
		if err == nil && len(tags) == 0 {
			withoutTags = append(withoutTags, id)
		}

		if isOtherKey(tags, err, scope) {
			continue
		}

		if err != nil {
			return nil, err
		}

		key, own, err := readKeyByID(ctx, api, id, scope)
		if err != nil {
			return nil, err
		}

		if own {
			if err := checkAdoptedKey(ctx, api, key); err != nil {
				return nil, err
			}

			found = append(found, key)
		}
	}

	untagged.record(withoutTags)

	return found, nil
}

// listUnaliasedKeyIDs returns the ids of the keys without an alias, and the alias, if it exists.
func listUnaliasedKeyIDs(
	ctx context.Context,
	api keyAPI,
	alias string,
) (found []plan.ActualResource, ids []string, err error) {
	var aliased map[string]bool
	err = runBoth(
		func() (err error) { found, aliased, err = readAliases(ctx, api, alias); return err },
		func() (err error) { ids, err = listKeyIDs(ctx, api); return err },
	)
	ids = slices.DeleteFunc(ids, func(id string) bool { return aliased[id] })

	return found, ids, err
}

// readKeyByID returns the key with id, and whether it belongs to the cluster.
func readKeyByID(ctx context.Context, api keyAPI, id string, scope Scope) (plan.ActualResource, bool, error) {
	meta, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &id})
	if err != nil {
		return plan.ActualResource{}, false, transport.Wrap(err, "read key %s", id)
	}

	return readKey(ctx, api, meta.KeyMetadata, scope)
}

// isOtherKey reports whether a key belongs to others, given the result of reading its tags.
func isOtherKey(tags awskind.Tags, err error, scope Scope) bool {
	return plan.ErrorClassOf(err) == plan.AccessDenied || err == nil && !isOwnKey(tags, scope)
}

func isOwnKey(tags awskind.Tags, scope Scope) bool {
	return tags[awskind.TagCluster] == scope.Cluster || tags[formerClusterTag] == scope.Cluster
}

func listKeyIDs(ctx context.Context, api keyReadAPI) ([]string, error) {
	var out []string
	pages := kms.NewListKeysPaginator(api, &kms.ListKeysInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list keys")
		}

		for _, k := range page.Keys {
			out = append(out, aws.ToString(k.KeyId))
		}
	}

	return out, nil
}

// readKey returns the key, and whether it belongs to the cluster and is not pending deletion.
func readKey(
	ctx context.Context,
	api keyAPI,
	meta *kmstypes.KeyMetadata,
	scope Scope,
) (plan.ActualResource, bool, error) {
	id := aws.ToString(meta.KeyId)
	if meta.KeyState == kmstypes.KeyStatePendingDeletion {
		return plan.ActualResource{}, false, nil
	}

	var tags awskind.Tags
	var rotation *kms.GetKeyRotationStatusOutput
	var policy *kms.GetKeyPolicyOutput
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() { tags, errs[0] = readKeyTags(ctx, api, id) })
	if omitsDetails(ctx) {
		rotation = &kms.GetKeyRotationStatusOutput{}
		policy = &kms.GetKeyPolicyOutput{}
	} else {
		wg.Go(func() {
			in := &kms.GetKeyRotationStatusInput{KeyId: &id}
			rotation, errs[1] = api.GetKeyRotationStatus(ctx, in)
		})
		wg.Go(func() {
			in := &kms.GetKeyPolicyInput{KeyId: &id, PolicyName: aws.String(keyPolicyName)}
			policy, errs[2] = api.GetKeyPolicy(ctx, in)
		})
	}

	wg.Wait()

	if isOtherKey(tags, errs[0], scope) {
		return plan.ActualResource{}, false, nil
	}

	errs[1] = transport.Wrap(errs[1], "read the rotation of key %s", id)
	errs[2] = transport.Wrap(errs[2], "read the policy of key %s", id)
	if err := errors.Join(errs[:]...); err != nil {
		return plan.ActualResource{}, false, err
	}

	a := plan.ActualResource{
		Addr:       addressFromTags(tags),
		ID:         id,
		Attributes: map[string]string{"Arn": aws.ToString(meta.Arn)},
	}
	if tags[formerClusterTag] == scope.Cluster {
		a.Addr += graph.Addr("@" + id) // to be deleted, never to be used again
	}

	keyPolicy, _ := removeNewKeyStatement(aws.ToString(policy.Policy))
	a.Resource = awskind.KMSKey{
		Description: aws.ToString(meta.Description),
		Rotation:    rotation.KeyRotationEnabled,
		Enabled:     meta.Enabled,
		Policy:      keyPolicy,
		Tags:        tags,
	}

	return a, true, nil
}

func readKeyTags(ctx context.Context, api keyReadAPI, id string) (awskind.Tags, error) {
	out := awskind.Tags{}
	pages := kms.NewListResourceTagsPaginator(api, &kms.ListResourceTagsInput{KeyId: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the tags of key %s", id)
		}

		for _, t := range page.Tags {
			out[aws.ToString(t.TagKey)] = aws.ToString(t.TagValue)
		}
	}

	return out, nil
}

func toKMSTags(tags awskind.Tags) []kmstypes.Tag {
	var out []kmstypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, kmstypes.Tag{TagKey: aws.String(k), TagValue: aws.String(tags[k])})
	}

	return out
}
