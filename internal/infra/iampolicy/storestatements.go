// SPDX-License-Identifier: Apache-2.0

package iampolicy

import "strings"

// objectARNs returns the ARNs of the stores' buckets and of the cluster's objects in them.
func (s policyBuilder) objectARNs() (buckets, all []string) {
	for _, st := range s.Stores {
		bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
		base := strings.TrimSuffix(bucket+"/"+st.Prefix, "/") + "/"
		buckets = append(buckets, bucket)
		all = append(all, base+s.Cluster+"/*")
		all = append(all, base+"_operations/"+s.Cluster+"/*") // lock and journal
	}

	return buckets, all
}

// settingsARNs returns the ARN of each store's settings object.
func (s policyBuilder) settingsARNs() []string {
	var out []string
	for _, st := range s.Stores {
		base := strings.TrimSuffix("arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix, "/")
		out = append(out, base+"/slipway-state.json")
	}

	return out
}

// storeKeyCondition requires that the key has the alias of one of the stores.
func (s policyBuilder) storeKeyCondition() condition {
	var aliases []string
	for _, st := range s.Stores {
		aliases = append(aliases, "alias/slipway-"+st.Bucket)
	}

	return condition{"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
}

// storeReadStatements allows reading the state.
func (s policyBuilder) storeReadStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	buckets, objects := s.objectARNs()
	return []Statement{
		newStatement("ListState", qualifyActions("s3", "ListBucket"), buckets, nil),
		newStatement(
			"ReadState",
			qualifyActions("s3", "GetObject"),
			append(objects, s.settingsARNs()...),
			nil,
		),
		newStatement(
			"DecryptState",
			qualifyActions("kms", "Decrypt"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	}
}

// storeStatements allows reading and writing the state store and the machine store.
func (s policyBuilder) storeStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	_, objects := s.objectARNs()
	return append(
		s.storeReadStatements(),
		newStatement("WriteState", qualifyActions("s3", "DeleteObject", "PutObject"), objects, nil),
		newStatement(
			"EncryptState",
			qualifyActions("kms", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	)
}

// BuildStateInitPolicy returns the policy for 'slipway state init' of the store st. An operator needs it once
// for a store.
func BuildStateInitPolicy(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Stores = []StoreLocation{st}
	bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
	tagged := stringEquals("aws:RequestTag/slipway.dev/state", st.Bucket)

	return Policy{Version: "2012-10-17", Statement: []Statement{
		newStatement(
			"CreateBucket",
			qualifyActions(
				"s3", "CreateBucket", "GetBucketPolicy", "ListBucket", "PutBucketPolicy",
				"PutBucketPublicAccessBlock", "PutBucketVersioning", "PutEncryptionConfiguration",
			),
			[]string{bucket},
			nil,
		),
		newStatement("WriteSettings", qualifyActions("s3", "GetObject", "PutObject"), s.settingsARNs(), nil),
		newStatement(
			"CreateStateKey",
			qualifyActions("kms", "CreateKey", "TagResource"),
			[]string{"*"},
			tagged,
		),
		newStatement(
			"ChangeStateKey",
			qualifyActions("kms", "CreateAlias", "EnableKeyRotation"),
			[]string{s.regionalARN("kms", "key/*")},
			stringEquals("aws:ResourceTag/slipway.dev/state", st.Bucket),
		),
		newStatement(
			"AliasStateKey",
			qualifyActions("kms", "CreateAlias"),
			[]string{s.regionalARN("kms", "alias/slipway-"+st.Bucket)},
			nil,
		),
		newStatement(
			"UseStateKey",
			qualifyActions("kms", "Decrypt", "DescribeKey", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	}}
}
