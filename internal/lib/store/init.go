// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

// InitStep is one step of the initialization of a store. The user sees the steps before they run.
type InitStep struct {
	// Description is what the step creates, such as "bucket my-state".
	Description string
	// Found is what the step has found instead of creating it. Empty: it has created what
	// Description says.
	Found string
	run   func(context.Context) error
	found *string // set by run; nil if the step finds nothing
}

// Outcome returns what the step has done, for the user, once it has run.
func (s InitStep) Outcome() string {
	if s.Found != "" {
		return "found " + s.Found
	}

	return "created " + s.Description
}

// PlanInit returns the steps that create the store at rawURL, or nil if it exists. Every step is
// idempotent, so that an interrupted initialization can be repeated.
func PlanInit(ctx context.Context, rawURL string, opts Options) ([]InitStep, error) {
	s, cfg, err := connectStore(ctx, rawURL, opts)
	if err != nil {
		return nil, err
	}

	s3Store, isS3 := s.(*S3Store)
	found, err := s.Get(ctx, SettingsKey)
	if err == nil {
		set, err := readSettings(ctx, s)
		if err != nil || !isS3 || set.MachineBoundaryARN != "" || opts.Boundary == nil {
			return nil, err
		}

		return planBoundary(s3Store, cfg, opts, found, set), nil
	}

	if !errors.Is(err, ErrNotFound) {
		return nil, err
	}

	if isS3 {
		return planS3Init(s3Store, cfg, opts), nil
	}

	return planFileInit(s, opts)
}

// RunInitSteps runs the steps in order and calls done after each. It stops at the first error. A
// step is repeated for about a minute while AWS does not see what an earlier step has created.
func RunInitSteps(ctx context.Context, steps []InitStep, done func(InitStep)) error {
	for _, step := range steps {
		if err := propagation.Wait(ctx, isNotSeen, func() error { return step.run(ctx) }); err != nil {
			return fmt.Errorf("create %s: %w", step.Description, plainerror.Wrap(err))
		}

		if step.found != nil {
			step.Found = *step.found
		}

		done(step)
	}

	return nil
}

// isNotSeen reports whether S3 or KMS answered that a bucket or a key does not exist. S3 has a code
// of its own for a key of a bucket that KMS does not see.
func isNotSeen(err error) bool {
	codes := []string{"NoSuchBucket", "NotFoundException", "KMS.NotFoundException"}

	return errors.Is(err, ErrNotFound) || slices.Contains(codes, errorCode(err))
}

// newSettingsStep returns the last step, which writes the settings. A store with settings is
// initialized.
func newSettingsStep(s Store, set *Settings) InitStep {
	return InitStep{Description: SettingsKey, run: func(ctx context.Context) error {
		body, err := json.MarshalIndent(set, "", "  ")
		if err != nil {
			return err
		}

		_, err = s.Create(ctx, SettingsKey, append(body, '\n'))

		return err
	}}
}

// bucketAPI are the calls that create and configure a bucket.
type bucketAPI interface {
	CreateBucket(context.Context, *s3.CreateBucketInput, ...func(*s3.Options)) (*s3.CreateBucketOutput, error)
	HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	PutPublicAccessBlock(
		context.Context,
		*s3.PutPublicAccessBlockInput,
		...func(*s3.Options),
	) (*s3.PutPublicAccessBlockOutput, error)
	GetBucketPolicy(
		context.Context,
		*s3.GetBucketPolicyInput,
		...func(*s3.Options),
	) (*s3.GetBucketPolicyOutput, error)
	PutBucketPolicy(
		context.Context,
		*s3.PutBucketPolicyInput,
		...func(*s3.Options),
	) (*s3.PutBucketPolicyOutput, error)
	PutBucketVersioning(
		context.Context,
		*s3.PutBucketVersioningInput,
		...func(*s3.Options),
	) (*s3.PutBucketVersioningOutput, error)
	PutBucketEncryption(
		context.Context,
		*s3.PutBucketEncryptionInput,
		...func(*s3.Options),
	) (*s3.PutBucketEncryptionOutput, error)
}

// s3Initializer creates the bucket of a store, which only its owner can access and only over TLS,
// and the KMS key that encrypts the secrets in it.
type s3Initializer struct {
	buckets  bucketAPI
	keys     keyAPI
	caller   callerAPI
	bucket   string
	region   string
	endpoint string
	settings *Settings
	key      *keyAuthorization
}

// newBoundaryStep returns the step that creates the permissions boundary of machines and sets it in
// set.
func newBoundaryStep(s *S3Store, cfg aws.Config, opts Options, set *Settings) InitStep {
	at := Location{Bucket: s.bucket, Prefix: s.prefix}
	return InitStep{Description: "permissions boundary for the machines' IAM roles", run: func(ctx context.Context) (err error) {
		set.MachineBoundaryARN, err = opts.Boundary(ctx, cfg, at)
		return err
	}}
}

// planBoundary returns the steps that add the boundary to the settings of a store of an older
// slipway.
func planBoundary(s *S3Store, cfg aws.Config, opts Options, found Object, set Settings) []InitStep {
	return []InitStep{
		newBoundaryStep(s, cfg, opts, &set),
		{Description: SettingsKey + " with that boundary", run: func(ctx context.Context) error {
			body, err := json.MarshalIndent(set, "", "  ")
			if err != nil {
				return err
			}

			_, err = s.Update(ctx, SettingsKey, append(body, '\n'), found.ETag)

			return err
		}},
	}
}

func planS3Init(s *S3Store, cfg aws.Config, opts Options) []InitStep {
	client := s3.NewFromConfig(cfg, ExpectOwner(s.owner))
	m := s3Initializer{
		buckets:  client,
		keys:     kms.NewFromConfig(cfg),
		caller:   sts.NewFromConfig(cfg),
		bucket:   s.bucket,
		region:   cfg.Region,
		endpoint: aws.ToString(client.Options().BaseEndpoint),
		settings: &Settings{Version: settingsVersion},
		key:      &keyAuthorization{report: opts.ReportWaiting},
	}

	steps := []InitStep{
		{Description: "bucket " + s.bucket, run: m.ensureBucket},
		{Description: "public access block of " + s.bucket, run: m.blockPublicAccess},
		{Description: "policy of " + s.bucket + ": " + m.describePolicy(), run: m.putBucketPolicy},
		{Description: "versioning of " + s.bucket, run: m.enableVersioning},
		{Description: "KMS key " + keyAlias(m.bucket) + ", rotated yearly", run: m.ensureKMSKey, found: &m.key.found},
		{Description: "encryption of " + s.bucket + " with that key", run: m.setEncryption},
	}
	if opts.Boundary != nil {
		steps = append(steps, newBoundaryStep(s, cfg, opts, m.settings))
	}

	return append(steps, m.encryptedStep(newSettingsStep(s, m.settings)))
}

// encryptedStep returns a step that writes an object, which S3 encrypts with the key.
func (m s3Initializer) encryptedStep(step InitStep) InitStep {
	run := step.run
	step.run = func(ctx context.Context) error {
		return m.key.wait(ctx, "write "+step.Description, func() error { return run(ctx) })
	}

	return step
}

func (m s3Initializer) ensureBucket(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &m.bucket}
	if m.region != "us-east-1" { // S3 rejects this value as a LocationConstraint
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{
			LocationConstraint: s3types.BucketLocationConstraint(m.region),
		}
	}

	_, err := m.buckets.CreateBucket(ctx, in)

	switch errorCode(err) {
	case "BucketAlreadyOwnedByYou":
		return nil
	case "BucketAlreadyExists":
		if _, head := m.buckets.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &m.bucket}); head == nil {
			return nil // our own bucket: some endpoints return this error for both cases
		}

		return diag.WithHint(
			fmt.Errorf("the bucket belongs to another AWS account: %w", err),
			"choose another name: bucket names are unique across all AWS accounts",
		)
	}

	return err
}

func (m s3Initializer) blockPublicAccess(ctx context.Context) error {
	on := aws.Bool(true)
	_, err := m.buckets.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: &m.bucket,
		PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls:       on,
			BlockPublicPolicy:     on,
			IgnorePublicAcls:      on,
			RestrictPublicBuckets: on,
		},
	})

	return err
}

// isPlainHTTP reports whether the endpoint uses plain HTTP, such as an emulator on loopback. A
// TLS-only policy would then deny all requests.
func (m s3Initializer) isPlainHTTP() bool { return strings.HasPrefix(m.endpoint, "http://") }

func (m s3Initializer) describePolicy() string {
	if m.isPlainHTTP() {
		return "sealed keys only for operators and the control plane; not TLS only, since the endpoint has no TLS"
	}

	return "TLS only, sealed keys only for operators and the control plane"
}

// putBucketPolicy sets a bucket policy that requires TLS and protects the sealed keys. It never
// replaces an existing policy, and returns an error if that policy does not require TLS.
func (m s3Initializer) putBucketPolicy(ctx context.Context) error {
	have, err := m.buckets.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &m.bucket})
	switch {
	case err == nil && (m.isPlainHTTP() || requiresTLS(aws.ToString(have.Policy))):
		return nil
	case err == nil:
		return diag.WithHint(errors.New("the bucket already has a policy, which does not require TLS"),
			"add a statement that denies s3:* where aws:SecureTransport is false, or use another bucket")
	case errorCode(err) != "NoSuchBucketPolicy":
		return err
	}

	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": m.policyStatements()})
	if err != nil {
		return err
	}

	_, err = m.buckets.PutBucketPolicy(
		ctx,
		&s3.PutBucketPolicyInput{Bucket: &m.bucket, Policy: aws.String(string(policy))},
	)

	return err
}

// ReaderTag is the tag of IAM users and roles that may read no sealed key, whatever their policies
// allow. Its value is [ReaderTagValue].
const ReaderTag = "slipway.dev/access"

// ReaderTagValue is the value of [ReaderTag].
const ReaderTagValue = "read-only"

// policyStatements returns the statements of the bucket policy.
func (m s3Initializer) policyStatements() []map[string]any {
	bucket := "arn:" + partition.OfRegion(m.region).Name + ":s3:::" + m.bucket
	deny := func(sid string, action any, resource []string, condition map[string]any) map[string]any {
		return map[string]any{
			"Sid": sid, "Effect": "Deny", "Principal": "*",
			"Action": action, "Resource": resource, "Condition": condition,
		}
	}

	read := []string{"s3:GetObject", "s3:GetObjectVersion"}
	machines := "arn:" + partition.OfRegion(m.region).Name + ":iam::*:role/slipway/*"
	out := []map[string]any{
		deny(
			"ReadersReadNoKeys",
			read,
			// A backup of etcd has all Secrets.
			[]string{bucket + "/*/pki/private/*", bucket + "/*/machine/secrets/*", bucket + "/*/machine/etcd/*"},
			map[string]any{"StringEquals": map[string]string{"aws:PrincipalTag/" + ReaderTag: ReaderTagValue}},
		),
		deny(
			"MachinesReadNoStateKeys",
			read,
			[]string{bucket + "/*/pki/private/*"},
			map[string]any{"ArnLike": map[string]string{"aws:PrincipalArn": machines}},
		),
	}
	if m.isPlainHTTP() {
		return out
	}

	return append(out, denyPlainHTTP(bucket))
}

// denyPlainHTTP returns the statement of a bucket policy that denies requests without TLS. bucket
// is an ARN.
func denyPlainHTTP(bucket string) map[string]any {
	return map[string]any{
		"Sid":       "TLSOnly",
		"Effect":    "Deny",
		"Principal": "*",
		"Action":    "s3:*",
		"Resource":  []string{bucket, bucket + "/*"},
		"Condition": map[string]any{"Bool": map[string]string{"aws:SecureTransport": "false"}},
	}
}

// requiresTLS reports whether a bucket policy denies requests without TLS.
func requiresTLS(policy string) bool {
	type statement struct {
		Effect    string
		Condition struct {
			Bool map[string]any
		}
	}

	var one struct{ Statement statement }
	var many struct{ Statement []statement }
	if json.Unmarshal([]byte(policy), &one) == nil {
		many.Statement = []statement{one.Statement}
	} else if json.Unmarshal([]byte(policy), &many) != nil {
		return false
	}

	return slices.ContainsFunc(many.Statement, func(s statement) bool {
		return s.Effect == "Deny" && fmt.Sprint(s.Condition.Bool["aws:SecureTransport"]) == "false"
	})
}

func (m s3Initializer) enableVersioning(ctx context.Context) error {
	_, err := m.buckets.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &m.bucket, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
	})
	return err
}

func (m s3Initializer) setEncryption(ctx context.Context) error {
	_, err := m.buckets.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{
		Bucket: &m.bucket,
		ServerSideEncryptionConfiguration: &s3types.ServerSideEncryptionConfiguration{
			Rules: []s3types.ServerSideEncryptionRule{{
				BucketKeyEnabled: aws.Bool(true), // S3 then calls KMS once for many objects
				ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{
					SSEAlgorithm: s3types.ServerSideEncryptionAwsKms, KMSMasterKeyID: &m.settings.KMSKeyARN,
				},
			}},
		},
	})

	return err
}
