// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// storeFolders returns the ARN prefixes of the cluster's objects in each store, without a trailing slash.
func (s policyBuilder) storeFolders() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(out, s.storeBase(st)+"/"+s.Cluster)
	}

	return out
}

// storeBase returns the ARN prefix of a store's objects, without a trailing slash.
func (s policyBuilder) storeBase(st StoreLocation) string {
	return strings.TrimSuffix("arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix, "/")
}

// objectARNs returns the ARNs of all objects of the cluster in the stores, with its lock and journal.
func (s policyBuilder) objectARNs() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(out, s.storeBase(st)+"/"+s.Cluster+"/*", s.storeBase(st)+"/_operations/"+s.Cluster+"/*")
	}

	return out
}

// readableARNs returns the ARNs of the objects that a reader may read, which contain no secrets.
func (s policyBuilder) readableARNs() []string {
	var out []string
	for _, folder := range s.storeFolders() {
		for _, name := range []string{
			"applied.json", "assets.yaml", "cloudformation/*", "cluster.yaml", "index.json",
			"instancegroups/*", "machine/controlplane/*", "machine/worker/*", "ownership.json",
			"pki/certs.json", "provisioner.json", "rolling-update.json", "signature.json", "way.json",
			"zones.json",
		} {
			out = append(out, folder+"/"+name)
		}
	}

	for _, st := range s.Stores {
		out = append(out, s.storeBase(st)+"/_operations/"+s.Cluster+"/*")
	}

	return out
}

// keyARNs returns the ARNs of the cluster's sealed keys and of what they protect.
func (s policyBuilder) keyARNs() []string {
	var out []string
	for _, folder := range s.storeFolders() {
		out = append(out, folder+"/pki/private/*", folder+"/machine/secrets/*", folder+"/machine/etcd/*")
	}

	return out
}

// bucketARNs returns the ARNs of the stores' buckets.
func (s policyBuilder) bucketARNs() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(out, "arn:"+s.Partition+":s3:::"+st.Bucket)
	}

	return out
}

// settingsARNs returns the ARN of each store's settings object.
func (s policyBuilder) settingsARNs() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(out, s.storeBase(st)+"/slipway-state.json")
	}

	return out
}

// storeKeyCondition requires that the key has the alias of one of the stores.
func (s policyBuilder) storeKeyCondition() condition {
	var aliases []string
	for _, st := range s.Stores {
		aliases = append(aliases, "alias/slipway-"+strings.ReplaceAll(st.Bucket, ".", "_"))
	}

	return condition{"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
}

// objectKeyCondition allows the use of a store's key by S3 alone, for objects of the stores. With bucket keys, the
// encryption context is the bucket, else the object.
func (s policyBuilder) objectKeyCondition() condition {
	return s.viaS3Condition(append(s.bucketARNs(), s.objectARNs()...))
}

// viaS3Condition allows the use of a store's key by S3 alone, with one of these ARNs as the encryption context.
func (s policyBuilder) viaS3Condition(contexts []string) condition {
	c := s.storeKeyCondition()
	c["StringEquals"] = map[string][]string{"kms:ViaService": {"s3." + s.Region + "." + s.dnsSuffix()}}
	c["StringLike"] = map[string][]string{"kms:EncryptionContext:aws:s3:arn": contexts}

	return c
}

// sealedKeyCondition allows the use of a store's key for the cluster's sealed keys.
func (s policyBuilder) sealedKeyCondition() condition {
	c := s.storeKeyCondition()
	c["StringEquals"] = map[string][]string{"kms:EncryptionContext:" + awskind.TagCluster: {s.Cluster}}

	return c
}

// storeReadStatements allows reading the state without its keys, and denies these, whatever other policies allow.
func (s policyBuilder) storeReadStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	return []Statement{
		newStatement("ListState", qualifyActions("s3", "ListBucket"), s.bucketARNs(), nil),
		newStatement(
			"ReadState",
			qualifyActions("s3", "GetObject"),
			append(s.readableARNs(), s.settingsARNs()...),
			nil,
		),
		s.decryptStatement(),
		newDeny("DenyKeys", qualifyActions("s3", "GetObject", "GetObjectVersion"), s.keyARNs(), nil),
		newDeny(
			"DenyOpening",
			qualifyActions("kms", "Decrypt"),
			[]string{"*"},
			condition{"Null": {"kms:EncryptionContext:" + awskind.TagCluster: {"false"}}},
		),
	}
}

// decryptStatement allows S3 to decrypt objects of the stores for the caller.
func (s policyBuilder) decryptStatement() Statement {
	return newStatement(
		"DecryptState",
		qualifyActions("kms", "Decrypt"),
		[]string{s.regionalARN("kms", "key/*")},
		s.objectKeyCondition(),
	)
}

// storeStatements allows reading and writing the state store and the machine store, with the cluster's keys.
func (s policyBuilder) storeStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	keys := []string{s.regionalARN("kms", "key/*")}

	return []Statement{
		newStatement("ListState", qualifyActions("s3", "ListBucket"), s.bucketARNs(), nil),
		newStatement("ReadSettings", qualifyActions("s3", "GetObject"), s.settingsARNs(), nil),
		newStatement(
			"ChangeState",
			qualifyActions("s3", "DeleteObject", "GetObject", "PutObject"),
			s.objectARNs(),
			nil,
		),
		newStatement(
			"EncryptState",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			keys,
			s.objectKeyCondition(),
		),
		newStatement(
			"SealKeys",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			keys,
			s.sealedKeyCondition(),
		),
	}
}

// BuildStateInitPolicy returns the policy for 'slipway state init' of the store st. An operator needs it once
// for a store.
func BuildStateInitPolicy(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Stores = []StoreLocation{st}
	bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket

	return Policy{Version: policyVersion, Statement: append([]Statement{
		newStatement(
			"CreateBucket",
			qualifyActions(
				"s3", "CreateBucket", "GetBucketPolicy", "ListBucket", "PutBucketPolicy",
				"PutBucketPublicAccessBlock", "PutBucketVersioning", "PutEncryptionConfiguration",
			),
			[]string{bucket},
			nil,
		),
		newStatement(
			"WriteSettings",
			qualifyActions("s3", "GetObject", "PutObject"),
			s.settingsARNs(),
			nil,
		),
		// The policy of the new key lets its creator tag it, so that no permission to tag the keys of others is needed.
		newStatement("CreateStateKey", qualifyActions("kms", "CreateKey"), []string{"*"}, nil),
		newStatement(
			"ChangeStateKey",
			qualifyActions("kms", "CreateAlias", "EnableKeyRotation"),
			[]string{s.regionalARN("kms", "key/*")},
			stringEquals("aws:ResourceTag/slipway.dev/state", st.Bucket),
		),
		newStatement(
			"AliasStateKey",
			qualifyActions("kms", "CreateAlias"),
			[]string{s.regionalARN("kms", "alias/slipway-"+strings.ReplaceAll(st.Bucket, ".", "_"))},
			nil,
		),
		newStatement(
			"CreateBoundary",
			qualifyActions("iam", "CreatePolicy"),
			[]string{
				BoundaryARN(s.Partition, s.Account, st.Bucket),
				KarpenterBoundaryARN(s.Partition, s.Account, st.Bucket),
			},
			nil,
		),
	}, s.stateKeyStatements(st)...)}
}

// stateKeyStatements allow to find the key of the store st, to check it, and S3 to use it.
func (s policyBuilder) stateKeyStatements(st StoreLocation) []Statement {
	return []Statement{
		// By the alias in the request, which counts at once; that a key has an alias may take five minutes.
		newStatement(
			"FindStateKey",
			qualifyActions("kms", "DescribeKey"),
			[]string{s.regionalARN("kms", "key/*")},
			stringEquals("kms:RequestAlias", "alias/slipway-"+strings.ReplaceAll(st.Bucket, ".", "_")),
		),
		// A key that is found is used only if nobody else can use it.
		newStatement(
			"ReadStateKey",
			qualifyActions("kms", "GetKeyPolicy", "ListGrants", "ListResourceTags"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
		// Only S3 may use the key, for the settings: the policy opens no key that is sealed with it.
		newStatement(
			"UseStateKey",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.viaS3Condition(append(s.bucketARNs(), s.settingsARNs()...)),
		),
	}
}
