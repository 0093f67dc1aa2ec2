// SPDX-License-Identifier: Apache-2.0

// Package util has values of the client that package vcert is in the place of.
package util

// IssuerHint says who issues a certificate.
type IssuerHint string

// IssuerHintAllIssuers stands for all issuers.
const IssuerHintAllIssuers IssuerHint = "ALL_ISSUERS"
